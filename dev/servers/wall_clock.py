"""Processes whose wall clock is off, as on a host without NTP: for tests of clock comparisons.

libfaketime sits between the process and the C library and shifts CLOCK_REALTIME for it alone. Boot time and the
monotonic clock are left as they are, as no setting of a clock moves them. The library is the system's if it has one,
else Debian's, unpacked into the cache. In such a process `time.sleep` fails (libfaketime 0.9.10 counts the kernel's
absolute monotonic time as a shifted one); waits of threads and of event loops are unaffected.
"""

from __future__ import annotations

import platform
from pathlib import Path

from dev.servers import debian
from headgate.errors import EnvironmentProblem

_LIBRARY = "faketime/libfaketime.so.1"
_PACKAGE = "libfaketime"


def shifted(seconds: float) -> dict[str, str]:
    """The variables that start a process with its wall clock ahead by this much, or behind where it is negative."""
    return {
        "LD_PRELOAD": str(find_libfaketime()),
        "FAKETIME": f"{seconds:+.6f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
        "LC_NUMERIC": "C",
    }


def find_libfaketime() -> Path:
    """The library; one line with the remedy where it is not available."""
    installed = find_installed_libfaketime()
    if installed is not None:
        return installed
    for folder in _library_folders():
        library = debian.unpacked(_PACKAGE) / folder.relative_to("/") / _LIBRARY
        if library.exists():
            return library
    raise EnvironmentProblem(
        "Debian's libfaketime is not at its usual path", remedy="install libfaketime on this machine"
    )


def find_installed_libfaketime() -> Path | None:
    """The system's own."""
    return next((path for folder in _library_folders() if (path := folder / _LIBRARY).exists()), None)


def _library_folders() -> list[Path]:
    return [Path(f"/usr/lib/{platform.machine()}-linux-gnu"), Path("/usr/lib64"), Path("/usr/lib")]
