"""`python -m tests.golden.operator [--write]`: report stale golden files, or write them."""

from __future__ import annotations

import argparse
import sys

from tests.golden.operator.running import CASES, read_case, written


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.operator", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the result of each case; review the diff")
    options = parser.parse_args(arguments)
    stale = 0
    for path in CASES:
        text = written(read_case(path))
        if text == path.read_text():
            continue
        stale += 1
        if options.write:
            path.write_text(text)
        sys.stdout.write(f"{path.name} {'written' if options.write else 'is stale'}\n")
    return 0 if options.write or not stale else 1


if __name__ == "__main__":
    raise SystemExit(main())
