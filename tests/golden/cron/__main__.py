"""`python -m tests.golden.cron [--write]`: ask robfig/cron again whether the golden file is right, or write it."""

from __future__ import annotations

import sys

from tests.golden.cron.keeping import FILE, ask_robfig, build_cases, format_lines

if __name__ == "__main__":
    cases = build_cases()
    text = format_lines(cases, ask_robfig(cases))
    if "--write" in sys.argv:
        FILE.write_text(text, encoding="ascii")
        sys.stdout.write(f"{FILE.name} written\n")
        raise SystemExit(0)
    is_fresh = FILE.is_file() and FILE.read_text(encoding="ascii") == text
    sys.stdout.write("" if is_fresh else f"{FILE.name} is stale\n")
    raise SystemExit(0 if is_fresh else 1)
