"""A Spark whose executors write where they are told: by `local-cluster` they write where Spark stands."""

from __future__ import annotations

from pathlib import Path

import pyspark

WORK = "work"


def spark_home_in(folder: Path) -> Path:
    """Spark as it is installed, by links, in this folder; what executors say comes to lie in `spark/work` there."""
    home = folder / "spark"
    if not home.exists():
        home.mkdir()
        for part in Path(pyspark.__file__).parent.iterdir():
            if part.name != WORK:
                (home / part.name).symlink_to(part)
    return home
