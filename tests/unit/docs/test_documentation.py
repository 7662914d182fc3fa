"""Links lead to pages that exist, every page is in an index, and pages name only what the code has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dev.recording import COMMANDS, DEV
from tests.kit.page_examples import Example, faults_of
from tests.kit.page_names import missing_commands, missing_names

ROOT = Path(__file__).parents[3]
SVG = "{http://www.w3.org/2000/svg}"
FOLDERS_OF_MANY = ("docs/decisions/", "docs/runbooks/")
"""Listed by their folder's first page, since they are numbered or found from where they are needed."""

ABOUT_THE_PROJECT = ("docs/README.md", "docs/weaknesses.md")
USER_PAGES_MAX = 22
"""Nobody reads more than these; a page for the development of Headgate belongs in docs/internals."""

PATHS = ("Build an application", "Run the platform", "Work with data", "On call")
LINKS_PER_PATH_MAX = 6

_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def read_pages() -> dict[str, str]:
    """All pages at the root and under docs, by path."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


def links(path: str, text: str) -> Iterator[tuple[str, str]]:
    """The path within the repository, and the heading, of every link that does not leave it."""
    for target in _LINK.findall(_FENCED.sub("", text)):
        if "://" not in target and not target.startswith("mailto:"):
            file, _, heading = target.partition("#")
            there = (ROOT / path).parent / file if file else ROOT / path
            resolved = there.resolve()
            inside = resolved.is_relative_to(ROOT)
            yield resolved.relative_to(ROOT).as_posix() if inside else target, heading


def anchors(text: str) -> set[str]:
    """The headings of a page as they are linked to."""
    headings = re.findall(r"^#+ +(.+)$", _FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(pages: Mapping[str, str]) -> list[str]:
    """Links to a file, or to a heading of a page, that is not there."""
    dead = []
    for path, text in sorted(pages.items()):
        for file, heading in links(path, text):
            if file not in pages and not (ROOT / file).exists():
                dead.append(f"{path}: {file}")
            elif heading and heading not in anchors(pages.get(file, "")):
                dead.append(f"{path}: {file}#{heading}")
    return dead


def unlisted(pages: Mapping[str, str]) -> list[str]:
    """Pages under docs that neither the index nor the index of the internals names."""
    indexes = [path for path in ("docs/README.md", "docs/internals/README.md") if path in pages]
    listed = {file for index in indexes for file, _ in links(index, pages[index])}
    under_docs = {path for path in pages if path.startswith("docs/") and not path.startswith(FOLDERS_OF_MANY)}
    return sorted(under_docs - listed - {"docs/README.md"})


def user_pages(pages: Mapping[str, str]) -> list[str]:
    """Pages at the top of docs that are for users: not the index, and none that is about the project."""
    return sorted(path for path in pages if re.fullmatch(r"docs/[^/]+\.md", path) and path not in ABOUT_THE_PROJECT)


def test_every_link_leads_to_what_is_there() -> None:
    assert dead_links(read_pages()) == []


def test_the_index_lists_every_page() -> None:
    assert unlisted(read_pages()) == []


def test_users_have_few_pages() -> None:
    assert len(user_pages(read_pages())) <= USER_PAGES_MAX


def test_the_index_has_four_short_paths() -> None:
    index = read_pages()["docs/README.md"]
    sections = dict(zip(*[iter(re.split(r"^## (.+)$", index, flags=re.MULTILINE)[1:])] * 2, strict=True))
    lengths = {path: len(list(links("docs/README.md", sections[path]))) for path in PATHS}
    assert PATHS == tuple(sections)[:4]
    assert {} == {path: length for path, length in lengths.items() if not 3 <= length <= LINKS_PER_PATH_MAX}


@pytest.mark.parametrize("target", ["gone.md", "../gone.py", "README.md#gone", "#gone", "../../outside.md"])
def test_a_dead_link_is_found(target: str) -> None:
    assert len(dead_links({"docs/README.md": f"# Here\n[there]({target})\n"})) == 1


@pytest.mark.parametrize("target", ["README.md", "#here", "../pyproject.toml", "https://example.org/gone", ""])
def test_a_living_link_is_not_found(target: str) -> None:
    assert dead_links({"docs/README.md": f"# Here\n[there]({target})\n```\n[code](gone.md)\n```\n"}) == []


def test_a_page_that_is_not_listed_is_found() -> None:
    pages = {"docs/README.md": "[a](a.md)", "docs/a.md": "", "docs/b.md": "", "docs/decisions/0002-x.md": ""}
    assert unlisted(pages) == ["docs/b.md"]


def mute_points(text: str) -> list[str]:
    """Rows of the table of weak points that leave a cell empty."""
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    cells = {row: [cell.strip() for cell in row.strip("|").split("|")] for row in rows}
    return [row for row, each in cells.items() if len(each) != 3 or not all(cell.strip("-—") for cell in each)]


def test_every_weak_point_shows_how_much_and_what_to_do() -> None:
    page = read_pages()["docs/weaknesses.md"]
    assert mute_points(page) == []
    assert page.count("\n|") > 10


@pytest.mark.parametrize("row", ["| slow | - | wait |", "| slow | 9 s | |", "| slow | 9 s |"])
def test_a_weak_point_that_leaves_something_unsaid_is_found(row: str) -> None:
    assert mute_points(f"| what | how much | why |\n|---|---|---|\n{row}\n") == [row]


# ---- names that pages quote

NOT_OF_NOW = ("CHANGELOG.md", "CONTRIBUTING.md", "docs/internals/origins.md", "docs/decisions/")
"""Pages that quote names of other systems, of the past or of what is planned."""


def pages_of_now() -> list[str]:
    """Pages that describe the code as it is; docs/commands.md is generated and has a test of its own."""
    return sorted(path for path in read_pages() if not path.startswith((*NOT_OF_NOW, "docs/commands.md")))


@pytest.mark.parametrize("page", pages_of_now())
def test_the_code_has_what_a_page_names(page: str) -> None:
    text = read_pages()[page]
    assert [] == [*missing_names(text), *missing_commands(text)]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("set `spec.maxReceive`", "maxReceive"),
        ("the reason `QueueUnwell`", "QueueUnwell"),
        ("alert on `headgate_worker_gone_total`", "headgate_worker_gone_total"),
        ("set `HEADGATE_SPEED`", "HEADGATE_SPEED"),
        ("call `put_never()`", "put_never"),
        ("see `workers/headgate/gone.py`", "`workers/headgate/gone.py`"),
        ("run `headgate repair --from 3`", "--from"),
        ("run `headgate gone`", "gone"),
        ("Run:\n\n    headgate stats --speed\n", "--speed"),
        ("Run:\n\n    make gone\n", "make gone"),
    ],
)
def test_a_name_that_the_code_lacks_is_found(text: str, missing: str) -> None:
    entries = [*missing_names(text), *missing_commands(text)]
    assert len(entries) == 1
    assert missing in entries[0]


@pytest.mark.parametrize(
    "text",
    [
        "`spec.maxReceives`, `BulkFailing`, `HEADGATE_PASSWORD`, `put_many()`, `docs/README.md`, `bench/NAME.py`",
        "```\n`headgate gone`\n```\n",
        "`headgate worker --handler` and `headgate counter get`",
        "headgate_gone without backquotes",
    ],
)
def test_a_name_that_the_code_has_is_not_found(text: str) -> None:
    assert [] == [*missing_names(text), *missing_commands(text)]


# ---- figures

FIGURES = "docs/figures.md"
_MEASURED = re.compile(r"\b(\d[\d,.]*\d|\d) ?(messages/s|updates/s|µs|us|MB)(?![\w/])")
_TIME = re.compile(r"\b(\d[\d,.]*\d|\d) ?(ms|s)\b")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\|")
_IS_MEASURED = re.compile(r"\b(median|p50|p99|measured)\b")


def figures_in(text: str, *, all_times: bool = False) -> set[str]:
    """Rates, sizes in memory, and the times of sentences that present them as measured."""
    plain = re.sub(r"`[^`\n]*`", "", _FENCED.sub("", text))
    sentences = [each for each in _SENTENCE_END.split(plain) if all_times or _IS_MEASURED.search(each)]
    entries = [*_MEASURED.findall(plain), *(time for each in sentences for time in _TIME.findall(each))]
    return {" ".join(each) for each in entries}


def quoting_pages() -> list[str]:
    """Pages of users, and README."""
    return [page for page in ("README.md", *user_pages(read_pages())) if page != FIGURES]


@pytest.mark.parametrize("page", quoting_pages())
def test_a_measured_figure_is_quoted_from_the_page_of_figures(page: str) -> None:
    assert set() == figures_in(read_pages()[page]) - figures_in(read_pages()[FIGURES], all_times=True)


def test_a_quoted_figure_is_found() -> None:
    text = "It does 9,999 messages/s in 77 MB. At p99 it took 40.6 ms. It waits 5 s. `1 MB`"
    assert {"9,999 messages/s", "77 MB", "40.6 ms"} == figures_in(text)


# ---- pictures

PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_complete_in_itself_and_has_a_background(picture: Path) -> None:
    root = ElementTree.fromstring(picture.read_text(encoding="utf-8"))  # noqa: S314 - our own file
    shown = [page for page, text in read_pages().items() if f"pictures/{picture.name})" in text]
    assert root.get("aria-label")
    assert root.find(f"{SVG}rect[@class='card']") is not None
    assert [] == [each.get("href") for each in root.iter() if each.get("href")]
    assert len(picture.read_bytes()) < 30_000
    assert shown


def test_the_recording_shows_commands_that_there_are() -> None:
    text = (ROOT / "docs" / "pictures" / "terminal.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)  # noqa: S314 - our own file
    lines = ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]
    typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ headgate")]
    assert [DEV, *COMMANDS] == typed, "run: make recording"
    assert [] == [fault for each in typed for fault in faults_of(Example("recording", 0, "sh", (), f"{each}\n"))]
