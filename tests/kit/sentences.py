"""Rules of sentences, for texts that users read: pages of docs/, and strings of code, chart and resources.

A sentence has at most thirty words and one colon or semicolon, and begins with its subject. Help of an option is a
noun phrase; an error is one line in sentence case; a log line is static and has no full stop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.kit.public_texts import Kind, PublicText, texts_of_file
from tests.kit.words import ROOT, Finding, is_word

WORDS_MAX: Final = 30
HELP_MAX: Final = 45
CODE: Final = re.compile(r"``.+?``|`[^`]+`", re.DOTALL)

_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_TAG = re.compile(r"<!--.*?-->|</?[a-z][^>\n]*>", re.DOTALL)
_STOP = re.compile(r"(?<=[.!?])[\"')\]*_]*(?:\s+(?=[\"'(\[*_<]*[A-Z0-9`x])|\s*$)")
_SHORT = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|approx|no)\.", re.IGNORECASE)
_PAUSE = re.compile(r"[:;](?=\s|$)")
_RIDDLE = re.compile(r"[\"'(*_]*(What|Who|Whoever|Whatever)\b(?![^.?!]*\?)")
_INSIDE = re.compile(r"\b(the (?:ground|house)|statements as values|at most so)\b", re.IGNORECASE)
_FORMATTED = re.compile(r"%[a-z]")
_PHRASE = re.compile(r"(As|At|With|Where|How|What|Who|Whether|If|When|After|Before|So|Do|Not|Each|That|This|It)\b")


def sentences(text: str) -> list[str]:
    """A paragraph as its sentences, with code and links each as one word."""
    text = _LINK.sub(lambda match: match.group(1) or "x", CODE.sub("x", _TAG.sub("", text)))
    text = _SHORT.sub(lambda match: match.group().replace(".", ""), text)
    return [one for one in (" ".join(each.split()) for each in _STOP.split(text)) if one]


def broken_rules(text: PublicText) -> Iterator[str]:
    """The rules that a text breaks."""
    for sentence in sentences(text.text):
        words = sum(any(sign.isalnum() for sign in word) for word in sentence.split())
        if words > WORDS_MAX:
            yield f"a sentence of more than {WORDS_MAX} words"
        if len(_PAUSE.findall(sentence)) > 1:
            yield "more than one colon or semicolon in a sentence"
        if text.kind is not Kind.HEADING and _RIDDLE.match(sentence):
            yield "a sentence that begins with What or Who"
        if inside := _INSIDE.search(sentence):
            yield f"an inside word ({inside.group().lower()})"
    yield from _broken_by_kind(text)


def _broken_by_kind(text: PublicText) -> Iterator[str]:
    if text.kind is Kind.OPTION:
        phrase = text.text.partition("Default:")[0].strip()
        if len(phrase) > HELP_MAX:
            yield f"an option's help of more than {HELP_MAX} characters"
        if _PHRASE.match(phrase):
            yield "an option's help that is no noun phrase"
    if text.kind is Kind.ERROR:
        if "\n" in text.text.strip():
            yield "an error of more than one line"
        if text.text[:1].islower() and not re.match(r"x\b", text.text):
            yield "an error that does not begin with a capital"
    if text.kind is Kind.FACT and is_word(text.text):
        yield f"a fact of an error with the name {text.text}"
    if text.kind is Kind.LOG and text.text.rstrip().endswith("."):
        yield "a log line that ends in a full stop"
    if text.kind is Kind.LOG and _FORMATTED.search(text.text):
        yield "a log line with a value in its text, and not in a field"


def sentences_of_file(name: str, root: Path = ROOT) -> list[Finding]:
    """Every broken rule of a file's public texts, by line."""
    findings = [
        Finding(name, text.line, rule, " ".join(text.text.split())[:200])
        for text in texts_of_file(name, root)
        for rule in broken_rules(text)
    ]
    return sorted(findings, key=lambda finding: finding.line)
