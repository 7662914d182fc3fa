"""Write the SDK without async from the one with it: `python -m dev.sync_sdk [--check]`.

A class of `headgate/client/sync` has a part that is written by hand (opening, iterables that are read in the calling
thread), and between two marks a method for each public call of its asynchronous class: the same signature, the same
text, and a body that waits. With --check nothing is written: stale files are listed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

CLIENT = Path(__file__).resolve().parent.parent / "workers" / "headgate" / "client"
RESULTS = {
    "Queue": ("SyncQueue", "SyncQueue({}, self)"),
    "Counter": ("SyncCounter", "SyncCounter({}, self._running)"),
    "BatchPut": ("SyncBatchPut", "SyncBatchPut({}, self._connection)"),
    "list[Message]": ("list[SyncMessage]", "[SyncMessage(each, self._connection) for each in {}]"),
}
"""What a call returns, as the waiting one returns it. Anything else is returned as it is."""
PARAMETERS = {"Iterable[Message]": ("Iterable[SyncMessage]", "[each.message for each in {}]")}
"""The same for parameters."""


@dataclass(frozen=True)
class Source:
    """Where the methods of one class come from, and how they reach the event loop."""

    path: str
    name: str
    own: str
    """The attribute that holds the asynchronous object."""
    loop: str
    by_hand: frozenset[str] = frozenset()
    """Written by hand, or no part of the SDK without async."""
    on_loop: frozenset[str] = frozenset()
    """Calls without async that need the loop's thread."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SOURCES = {
    "blocking.py": (
        Source(
            "connection.py", "Headgate", "self.connection", "self._running()",
            by_hand=_names("open close counter_entries freshen read_overview refresh"),
        ),
        Source(
            "queue.py", "Queue", "self.queue", "self._background",
            by_hand=_names(
                "close put_many put_each put_chunk receive_deliveries"
                " read_peeked read_stats read_location run_repair"
            ),
        ),
        Source("message.py", "Message", "self.message", "self._connection._running()"),
    ),
    "blocking_counter.py": (
        Source(
            "counter.py", "Counter", "self.counter", "self._running()",
            by_hand=_names("close run_collector standing"), on_loop=_names("token"),
        ),
    ),
}  # fmt: skip


def generated_files() -> dict[Path, str]:
    """Every file with its generated parts as they should be."""
    return {CLIENT / "sync" / name: _file(CLIENT / "sync" / name, sources) for name, sources in SOURCES.items()}


def _file(path: Path, sources: tuple[Source, ...]) -> str:
    text = path.read_text(encoding="utf-8")
    for source in sources:
        begin = f"    # ---- generated from `{source.name}` by `python -m dev.sync_sdk`\n"
        end = f"    # ---- end of what is generated from `{source.name}`\n"
        if begin not in text or end not in text:
            raise SystemExit(f"{path}: a mark of {source.name} is missing")
        methods = indent("\n\n".join(_methods(source)), "    ")
        text = text.partition(begin)[0] + begin + "\n" + methods + "\n\n" + end + text.partition(end)[2]
    command = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(path), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _methods(source: Source) -> Iterator[str]:
    tree = ast.parse((CLIENT / source.path).read_text(encoding="utf-8"))
    (body,) = [each.body for each in tree.body if isinstance(each, ast.ClassDef) and each.name == source.name]
    for method in body:
        if isinstance(method, ast.AsyncFunctionDef | ast.FunctionDef) and not method.name.startswith("_"):
            waits = isinstance(method, ast.AsyncFunctionDef) and method.name not in source.by_hand
            if waits or method.name in source.on_loop:
                yield _method(method, source)


def _method(method: ast.AsyncFunctionDef | ast.FunctionDef, source: Source) -> str:
    """The same signature and text, and a body that waits for the call."""
    given, returns = method.args, ast.unparse(method.returns or ast.Constant(None))
    passed = [_passed(each) for each in given.args[1:]]
    passed += [f"*{given.vararg.arg}"] if given.vararg is not None else []
    passed += [f"{each.arg}={_passed(each)}" for each in given.kwonlyargs]
    passed += [f"**{given.kwarg.arg}"] if given.kwarg is not None else []
    arguments = ", ".join(passed)
    returns, wrapped = RESULTS.get(returns, (returns, "{}"))
    if method.name in source.on_loop:
        call = f"{source.loop}.call({source.own}.{method.name}, {arguments})"
    elif returns.startswith("AsyncIterator["):
        returns = returns.removeprefix("Async")
        call = f"{source.loop}.iterate({source.own}.{method.name}({arguments}))"
    else:
        call = f"{source.loop}.run({source.own}.{method.name}({arguments}))"
    signature = re.sub("|".join(map(re.escape, PARAMETERS)), lambda it: PARAMETERS[it[0]][0], ast.unparse(given))
    body = wrapped.format(call) if returns == "None" else f"return {wrapped.format(call)}"
    text = f'"""{ast.get_docstring(method)}"""\n{body}'
    return f"def {method.name}({signature}) -> {returns}:\n{indent(text, '    ')}"


def _passed(parameter: ast.arg) -> str:
    hint = ast.unparse(parameter.annotation) if parameter.annotation is not None else ""
    return PARAMETERS.get(hint, ("", "{}"))[1].format(parameter.arg)


def read_faults() -> list[str]:
    """The stale files."""
    stale = [path for path, text in generated_files().items() if path.read_text(encoding="utf-8") != text]
    return [f"{path} is stale; run `make generate` and commit what it writes" for path in stale]


def main(arguments: list[str]) -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(prog="python -m dev.sync_sdk", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; list stale files")
    if parser.parse_args(arguments).check:
        faults = read_faults()
        sys.stderr.writelines(f"{fault}\n" for fault in faults)
        return 1 if faults else 0
    for path, text in generated_files().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
