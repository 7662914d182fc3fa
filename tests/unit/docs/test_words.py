"""No text uses the words that tests/kit/words.py lists, and what users read keeps the rules of sentences.py.

Each part of the repository is a test of its own. `python -m tests.kit.words PATH` prints the places of a part.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.public_texts import Kind, PublicText, paragraphs, shown_by_code
from tests.kit.sentences import broken_rules, sentences, sentences_of_file
from tests.kit.text_blocks import Block, python_blocks, whole_block
from tests.kit.words import files_by_surface, tracked_files, words_in, words_of_file

PARTS = files_by_surface(tracked_files())
SHOWN = 20
"""Findings of a part that a failing test prints."""


@pytest.mark.parametrize("part", sorted(PARTS))
def test_a_text_uses_the_words_of_the_style(part: str) -> None:
    findings = [str(each) for name in PARTS[part] for each in words_of_file(name)]
    assert [] == findings[:SHOWN], f"{len(findings)} in {part}"


@pytest.mark.parametrize("part", sorted(PARTS))
def test_what_users_read_keeps_the_rules_of_sentences(part: str) -> None:
    findings = [str(each) for name in PARTS[part] for each in sentences_of_file(name)]
    assert [] == findings[:SHOWN], f"{len(findings)} in {part}"


def _words(block: Block) -> list[str]:
    return [word.lower() for _, word, _, _ in words_in(block)]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("The operator is told about it.", "told"),
        ("Tell it.", "tell"),
        ("It says so.", "says"),
        ("Mend the clock.", "mend"),
        ("Two commands to press.", "press"),
        ("It stands in the status.", "stands in"),
        ("The loop begins anew.", "anew"),
        ("It goes on.", "goes on"),
        ("It goes\non.", "goes on"),
        ("A lane gets on.", "gets on"),
        ("Cassandra is away.", "away"),
        ("Messages in hand.", "in hand"),
        ("Messages in its hands.", "hands"),
        ("It looked at the row.", "looked"),
        ("At this moment.", "moment"),
        ("Unset: ten.", "unset:"),
        ("It can not start.", "can not"),
        ("At most so many.", "so many"),
        ("The worker who owns the lane.", "who"),
        ("It is his lane.", "his"),
        ("An engine that is not carried.", "carried"),
        ("The queue was made again.", "made again"),
        ("A queue of graves.", "graves"),
        ("It is begun again.", "begun again"),
        ("About 20,000 messages a second.", "messages a second"),
        ("5 a minute.", "5 a minute"),
        ("It costs 25 bytes a message.", "25 bytes a message"),
    ],
)
def test_a_word_is_found(text: str, word: str) -> None:
    assert word in _words(whole_block(text))


@pytest.mark.parametrize(
    "text",
    [
        "The operator looks up the row, and does it right away.",
        "A GET on a Secret takes a second.",
        "It runs a second time, and reads a row.",
        "A message carries a key. The queue whose name is long.",
        "It compresses, suspends and recommends.",
        "See https://example.org/who/says and {told}.",
        "It waits a minute in front of 5. A message arrives.",
        "It cannot start, since it is unset.",
    ],
)
def test_a_right_sentence_is_not_found(text: str) -> None:
    assert [] == _words(whole_block(text))


def test_a_place_in_python_is_in_a_comment_or_a_string_and_has_its_line() -> None:
    source = "\n".join(
        [
            "told = who(says)  # a name is no text",
            "# the loop goes",
            "# on",
            'text = f"the {told} "',
            'text = ("it can "',
            '        "not {who}\\nlook")',
        ]
    )
    entries = sorted((line, word) for block in python_blocks(source) for line, word, _, _ in words_in(block))
    assert [(2, "goes on"), (5, "can not"), (6, "look")] == entries


@pytest.mark.parametrize("text", ["says", "(says text, look int, PRIMARY KEY ((a), look)\\n) WITH ID = 1", "moments"])
def test_names_of_stored_columns_and_types_are_no_words(text: str) -> None:
    assert [] == _words(whole_block(text))


@pytest.mark.parametrize("text", ["It says", "a look)", "two moments later"])
def test_a_word_that_is_also_the_name_of_a_column_or_type_is_found(text: str) -> None:
    assert 1 == len(_words(whole_block(text)))


def test_a_finding_names_file_line_word_replacement_and_sentence(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# Page\n\nFine. It is made\nanew. Fine.\n", encoding="utf-8")
    assert ["page.md:4: anew -> again: It is made anew."] == [
        str(each) for each in words_of_file("page.md", tmp_path)
    ]


@pytest.mark.parametrize(
    ("kind", "text", "rule"),
    [
        (Kind.SENTENCE, "One two: three; four.", "more than one colon or semicolon in a sentence"),
        (Kind.SENTENCE, "word " * 31, "a sentence of more than 30 words"),
        (Kind.SENTENCE, "Fine. What does not fit stays.", "a sentence that begins with What or Who"),
        (Kind.OPTION, "As one JSON object.", "an option's help that is no noun phrase"),
        (Kind.OPTION, "a" * 46, "an option's help of more than 45 characters"),
        (Kind.ERROR, "the queue is closed", "an error that does not begin with a capital"),
        (Kind.ERROR, "The queue\nis closed", "an error of more than one line"),
        (Kind.FACT, "said", "a fact of an error with the name said"),
        (Kind.LOG, "lease lost.", "a log line that ends in a full stop"),
        (Kind.LOG, "lease lost: %s", "a log line with a value in its text, and not in a field"),
    ],
)
def test_a_broken_rule_is_found(kind: Kind, text: str, rule: str) -> None:
    assert [rule] == list(broken_rules(PublicText(1, kind, text)))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.SENTENCE, "One: `a: b; c: d` and 06:10 in [a](x:y;)."),
        (Kind.SENTENCE, "What is a lane? A part of a queue, e.g. one of 16."),
        (Kind.HEADING, "What it costs"),
        (Kind.OPTION, "Maximum number of messages. Default: all that are in the queue now, at its start."),
        (Kind.ERROR, "`spec.parts` is not a number"),
        (Kind.LOG, "lease lost"),
    ],
)
def test_a_kept_rule_is_not_found(kind: Kind, text: str) -> None:
    assert [] == list(broken_rules(PublicText(1, kind, text)))


def test_a_paragraph_is_parted_into_sentences_with_code_as_one_word() -> None:
    assert ["Run x (a. b).", "It ends.", "Then x."] == sentences("Run `a. B c` (a. b). It ends. Then `x.y`.")


def test_code_of_a_page_is_no_text_and_each_item_and_cell_is_one() -> None:
    page = "# Head\n\nA\nb.\n\n    code: x\n\n```\ncode\n```\n- one\n  more\n- two\n\n| a | b |\n| - | - |\n"
    entries = [(each.line, each.text) for each in paragraphs(page)]
    assert [
        (1, "Head"),
        (3, "A b."),
        (11, "one more"),
        (13, "two"),
        (15, "a"),
        (15, "b"),
        (16, "-"),
        (16, "-"),
    ] == entries


def test_what_code_shows_is_collected_by_kind() -> None:
    source = '''
class Late(HeadgateError):
    """It is late."""

@main.command("run")
@option("--n", help="Number.")
def run():
    """Run it."""
    log.info("run begun")
    raise Late(f"Late by {n} s", remedy="Wait.")

registry.counter("headgate_runs_total", "Runs.")
MEANINGS = {Reason.A: "All is well."}
blocked(Reason.B, "Not yet.")
'''
    result = {(each.kind, each.text) for each in shown_by_code(source, frozenset(("HeadgateError", "Late")))}
    expected = {
        (Kind.ERROR, "It is late."),
        (Kind.OPTION, "Number."),
        (Kind.SENTENCE, "Run it."),
        (Kind.LOG, "run begun"),
        (Kind.ERROR, "Late by x s"),
        (Kind.SENTENCE, "Wait."),
        (Kind.FACT, "remedy"),
        (Kind.SENTENCE, "Runs."),
        (Kind.SENTENCE, "All is well."),
        (Kind.SENTENCE, "Not yet."),
    }
    assert expected == result
