"""How the virtual machines of Spark's tests run: they live for a minute, so compiling well would never pay."""

from __future__ import annotations

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
