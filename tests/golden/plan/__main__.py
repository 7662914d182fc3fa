"""`python -m tests.golden.plan [--write]`: report stale plans of the examples, or write them."""

from __future__ import annotations

import sys

from tests.golden.plan.running import PLANS, planned

if __name__ == "__main__":
    stale = [plan for plan in PLANS if not plan.is_file() or planned(plan) != plan.read_text(encoding="utf-8")]
    for path in stale:
        if "--write" in sys.argv:
            path.write_text(planned(path), encoding="utf-8")
        sys.stdout.write(f"{path.name} {'written' if '--write' in sys.argv else 'is stale'}\n")
    raise SystemExit(1 if stale and "--write" not in sys.argv else 0)
