"""Archives on the path of a Python worker are scanned again only where they have changed.

Before each task Spark clears Python's import caches, so that added files are found. Since 3.10 Python then reads the
directory of each zip archive again, and Spark brings its own as one, of 1,300 files: 0.2 s of CPU per task, which is
more than reading a hundred thousand messages.
"""

from __future__ import annotations

import sys
from pathlib import Path
from zipimport import zipimporter

FileVersion = tuple[int, int, int] | None


class UnchangedArchive(zipimporter):
    """An archive on the path, which remembers the file that it has read."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._version = _version(self.archive)

    def invalidate_caches(self) -> None:
        """Read it again if it is another file by now."""
        version = _version(self.archive)
        if version != self._version:
            super().invalidate_caches()
            self._version = version


def _version(path: str) -> FileVersion:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def spare_archives() -> None:
    """For all that are on the path of this process by now."""
    for path, finder in tuple(sys.path_importer_cache.items()):
        if type(finder) is zipimporter:
            sys.path_importer_cache[path] = UnchangedArchive(path)
