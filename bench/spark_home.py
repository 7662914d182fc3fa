"""A Spark whose executors write to a given folder: by `local-cluster` they write into Spark's own."""

from __future__ import annotations

from pathlib import Path

import pyspark

WORK = "work"


def spark_home_in(folder: Path) -> Path:
    """The installed Spark, by links, in this folder; the executors' output is in its `spark/work`."""
    home = folder / "spark"
    if not home.exists():
        home.mkdir()
        for part in Path(pyspark.__file__).parent.iterdir():
            if part.name != WORK:
                (home / part.name).symlink_to(part)
    return home
