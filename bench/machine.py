"""The machine's other load, the time stolen from it, and its description (without its name).

/proc/stat counts all CPU time of the machine, so the time of neither the clients nor Cassandra is others' use. For a
window of a second that is more precise than a load average of a minute, which is kept too.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from bench.cpu import TICKS_PER_S


@dataclass(frozen=True)
class MachineCpu:
    """CPU seconds of the whole machine since it started, all cores together."""

    busy_s: float
    stolen_s: float


def parse_machine_stat(text: str) -> MachineCpu:
    """The first line of /proc/stat: user nice system idle iowait irq softirq steal (guests are part of user)."""
    line = text.splitlines()[0].split()
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in line[1:9])
    return MachineCpu((user + nice + system + irq + softirq) / TICKS_PER_S, steal / TICKS_PER_S)


def parse_load_average(text: str) -> float:
    """The average of the last minute, from /proc/loadavg."""
    return float(text.split(maxsplit=1)[0])


def parse_cpu_model(text: str) -> str:
    """The processor's name in /proc/cpuinfo."""
    named = (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name"))
    return next(named, platform.machine())


def read_machine_cpu() -> MachineCpu:
    """Now."""
    return parse_machine_stat(Path("/proc/stat").read_text())


def read_load_average() -> float:
    """Now."""
    return parse_load_average(Path("/proc/loadavg").read_text())


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def describe() -> dict[str, object]:
    """The facts that a reader of the result may compare with another machine; no host name."""
    memory_b = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": cores(),
        "memory_gb": round(memory_b / 2**30),
        "processor": parse_cpu_model(Path("/proc/cpuinfo").read_text()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def parse_memory_mb(text: str) -> float:
    """The resident memory of a process, from /proc/<pid>/status."""
    line = next(line for line in text.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def read_peak_memory_mb(pid: int) -> float:
    """The peak resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return parse_memory_mb(status.replace("VmRSS:", "").replace("VmHWM:", "VmRSS:"))


def read_memory_mb(pid: int) -> float:
    """Now."""
    return parse_memory_mb(Path(f"/proc/{pid}/status").read_text())
