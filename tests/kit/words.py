"""The words that this repository does not use, and what it writes instead; the test searches every tracked file.

`python -m tests.kit.words [PATH ...]` prints each place as `file:line: word -> replacement: the sentence`, and exits
with 1 when there is one. `--count` prints numbers by folder, `--sentences` the rules of tests/kit/sentences.py too.
There are no exceptions: a right sentence can be written without each of these words.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.kit.text_blocks import Block, read_blocks

ROOT: Final = Path(__file__).parents[2]
OWN_LIST: Final = (
    "tests/kit/words.py",
    "tests/kit/sentences.py",
    "tests/unit/docs/test_words.py",
    "tests/unit/docs/test_names.py",
)
"""Files that have to quote the words."""
NOT_OURS: Final = re.compile(r"(^|/)LICENSE$|\.lock$|/go\.sum$|\.(png|gif|svg|ico|jar|gz)$")
"""A licence, lock files, and what is no text."""

_AMOUNT = r"\d(?:[\d,.]*\d)?(?: ?(?:µs|us|ms|s|[kKMGT]i?B|[kM]|bytes|million|thousand))?"
_NUMBERS = "once|twice|times|one|two|three|four|five|ten|twenty|hundreds?|thousands?|millions?"
_COUNTED = (
    "bytes|messages|rows|statements|requests|writes|reads|puts|acks|settles|calls|events|changes|operations"
    "|transactions|tombstones|deliveries|partitions|looks|beats|figures|keys|queues|updates|counts|increments|samples"
    "|batches|objects|records|failures|errors|rounds|passes|lines|restarts|attempts|decisions"
)
_PERIODS = "second|minute|hour|day|week|month|year"
_SHARES = "message|row|queue|lane|delivery|put|batch|partition|key|request"

WORDS: Final[tuple[tuple[str, str], ...]] = (
    (r"told|tells?|telling", "report, print, show, pass, name"),
    (r"says|said|say|saying", "state, report, print, show, name"),
    (r"mend(?:s|ed|ing)?", "fix, repair"),
    (r"press(?:es|ed|ing)?", "run, type"),
    (r"(?:stands?|stood|standing) in", "is in, replaces"),
    (r"anew", "again"),
    (r"(?:go|goes|going|went|gone) on", "continue"),
    (r"(?-i:[Gg]ets?|[Gg]etting|[Gg]ot|[Gg]otten) on", "make progress"),
    (r"(?<!right\s)away", "unavailable, gone, removed"),
    (r"hands|in hand", "in flight, passes, hand over"),
    (r"look(?:s|ed|ing)?(?!(?: |-)ups?\b)", "check, inspect, read, seem"),
    # `moments` is also a type of counter, as statistics name it: in a list, in quotes, or a literal of its own.
    (r"moment|moments(?![`'\",|:]| \(count|\.py|\Z)", "time, instant"),
    (r"unset:", "Default:"),
    (r"can not", "cannot"),
    (r"so (?:many|long)", "number of, how long, as long as"),
    (r"who|whom|whoever|whomever", "name the component; that"),
    (r"(?-i:[Hh]e)|him|his|himself|she|hers|herself", "it, they, you"),
    (r"carried", "supported, passed, kept"),
    (r"(?:make|makes|made|making) again", "recreated"),
    (r"graves?", "dead-letter queue"),
    (r"(?:begin|begins|began|begun|beginning) (?:anew|again)", "restart"),
    (
        rf"(?:{_AMOUNT}|[kKMGT]i?B|{_NUMBERS}|{_COUNTED}) an? (?:{_PERIODS})(?! (?:time|pass|look|round|one))",
        "per second, per hour",
    ),
    (
        rf"(?:{_AMOUNT}|µs|ms|[kKMG]i?B|bytes|rows|statements|milliseconds|microseconds) a (?:{_SHARES})",
        "per message",
    ),
)
"""Each word as a regular expression, and what to write instead; a space is any white space."""

STORED_COLUMN: Final = re.compile(
    r"(?:looks?|says|told)(?: (?:int|text)\b|: (?:int|text) (?:regular|clustering)|\)(?:\s|\\n)*\) WITH ID|\Z)"
)
"""Columns of tables of version 0.1.0, as a literal or in CQL, and its table of repair's scans, as a literal: later
versions read them by these names."""


@dataclass(frozen=True)
class Finding:
    """One place that breaks a rule."""

    path: str
    line: int
    rule: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.sentence}"


def tracked_files(root: Path = ROOT) -> list[str]:
    """Every tracked text file, without those that have to quote the words and those that are not ours."""
    answer = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True)
    files = [name for name in answer.stdout.split("\0") if name and name not in OWN_LIST]
    return [name for name in files if not NOT_OURS.search(name) and (root / name).is_file()]


@cache
def _expressions() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((_compiled(pattern, r"\s+"), replacement) for pattern, replacement in WORDS)


@cache
def _any_word() -> re.Pattern[str]:
    """Any word in source text, where quotes and comment marks may be between two of them."""
    return _compiled("|".join(pattern for pattern, _ in WORDS), r"""[\s#"'frb/*>\\-]+""")


def _compiled(pattern: str, gap: str) -> re.Pattern[str]:
    spaced = re.sub(r" (?!\?)", lambda _: gap, pattern)
    return re.compile(rf"(?:(?<!\w)|(?<=\\[ntr]))(?:{spaced})(?:(?<=:)|\b)", re.IGNORECASE)


def is_word(text: str) -> bool:
    """Whether a text is one of the words, and nothing else."""
    return any(pattern.fullmatch(text) for pattern, _ in _expressions())


def words_in(block: Block) -> Iterator[tuple[int, str, str, str]]:
    """(line, word, replacement, sentence) of each place in a block."""
    text = block.text
    for pattern, replacement in _expressions():
        for match in pattern.finditer(text):
            column = STORED_COLUMN.match(text, match.start())
            if column is not None and (column.end() > match.end() or match.start() == 0):
                continue
            word = " ".join(match.group().split())
            yield block.line_at(match.start()), word, replacement, sentence_around(text, match.start(), match.end())


def sentence_around(text: str, start: int, end: int, *, width: int = 160) -> str:
    """The sentence of a place, in one line."""
    before = max(text.rfind(sign, 0, start) for sign in (". ", "\n\n", ".\n", "? ", "! "))
    after = min((at for sign in (". ", ".\n", "\n\n", "? ") if (at := text.find(sign, end)) >= 0), default=len(text))
    first, last = max(before + 1, start - width // 2), min(after + 1, end + width // 2)
    return " ".join(text[first:last].split())


def words_of_file(name: str, root: Path = ROOT) -> list[Finding]:
    """Every place of a file, by line."""
    path = root / name
    try:
        if not _any_word().search(path.read_text(encoding="utf-8")):
            return []
        findings = [
            Finding(name, line, f"{word} -> {replacement}", sentence)
            for block in read_blocks(path)
            for line, word, replacement, sentence in words_in(block)
        ]
    except UnicodeDecodeError:
        return []
    return sorted(findings, key=lambda finding: finding.line)


def surface(name: str) -> str:
    """The part of the repository that a file belongs to."""
    folders = name.split("/")[:-1]
    depth = 3 if folders[:1] == ["workers"] else 2
    return "/".join(folders[:depth]) if folders else "(root)"


def files_by_surface(names: Iterable[str]) -> dict[str, list[str]]:
    """Files by the part that they belong to."""
    parts: dict[str, list[str]] = {}
    for name in names:
        parts.setdefault(surface(name), []).append(name)
    return parts


def _wanted(paths: list[str]) -> list[str]:
    names = tracked_files()
    if not paths:
        return names
    roots = [Path(path).resolve().relative_to(ROOT).as_posix() for path in paths]
    return [name for name in names if any(at in (".", name) or name.startswith(f"{at}/") for at in roots)]


def main() -> None:
    """Print every place, or how many there are."""
    from tests.kit.sentences import sentences_of_file

    parser = argparse.ArgumentParser(prog="python -m tests.kit.words")
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--count", action="store_true", help="numbers by folder, and by word")
    parser.add_argument("--sentences", action="store_true", help="the sentence rules too")
    parser.add_argument("--only-sentences", action="store_true", help="the sentence rules alone")
    options = parser.parse_args()
    names = _wanted(options.paths)
    with_sentences = options.sentences or options.only_sentences
    findings = [] if options.only_sentences else [each for name in names for each in words_of_file(name)]
    if with_sentences or options.count:
        findings += [each for name in names for each in sentences_of_file(name)]
    if options.count:
        for part, number in sorted(Counter(surface(each.path) for each in findings).items()):
            sys.stdout.write(f"{number:6} {part}\n")
        sys.stdout.write("\n")
        for rule, number in Counter(each.rule for each in findings).most_common():
            sys.stdout.write(f"{number:6} {rule}\n")
    else:
        for each in sorted(findings, key=lambda finding: (finding.path, finding.line)):
            sys.stdout.write(f"{each}\n")
    raise SystemExit(1 if findings else 0)


if __name__ == "__main__":
    main()
