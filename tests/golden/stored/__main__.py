"""`python -m tests.golden.stored [--write]`: is what versions have stored read; keep what this one does."""

from __future__ import annotations

import argparse
import sys

import yaml

from tests.golden.stored.keeping import FOLDER, KEPT, left_behind, this_version, unread


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.stored", description=__doc__)
    parser.add_argument("--write", action="store_true", help="once, when this version is released")
    if parser.parse_args(arguments).write:
        path = FOLDER / f"{this_version()}.yaml"
        path.write_text(yaml.safe_dump(left_behind(), sort_keys=True, width=118))
        sys.stdout.write(f"{path.name} written\n")
        return 0
    faults = [f"{path.stem}: {fault}" for path in KEPT for fault in unread(yaml.safe_load(path.read_text()))]
    sys.stdout.write("".join(f"{fault}\n" for fault in faults))
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
