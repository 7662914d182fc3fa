"""Pages lead where they say, and every page can be found from the index."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS_OF_MANY = ("docs/decisions/", "docs/runbooks/")
"""Listed by their folder's first page, since they are numbered or found from where they are needed."""

ABOUT_THE_PROJECT = ("docs/README.md", "docs/origins.md", "docs/weaknesses.md")
USER_PAGES_MAX = 22
"""More than these nobody reads; a page for those who change Headgate belongs in docs/internals."""

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


def test_every_weak_point_says_how_much_and_what_to_do() -> None:
    page = read_pages()["docs/weaknesses.md"]
    assert mute_points(page) == []
    assert page.count("\n|") > 10


@pytest.mark.parametrize("row", ["| slow | - | wait |", "| slow | 9 s | |", "| slow | 9 s |"])
def test_a_weak_point_that_leaves_something_unsaid_is_found(row: str) -> None:
    assert mute_points(f"| what | how much | why |\n|---|---|---|\n{row}\n") == [row]
