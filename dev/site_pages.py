"""What the documentation site has beyond the pages under docs; mkdocs calls it as a hook (mkdocs.yml).

- A link that leaves docs/ leads to a copy within the site, so that `mkdocs build --strict` checks it like any other:
  a page at the root becomes a page, any other file a download, and a folder a page that lists its files.
- The commands are rendered from click by mkdocs-click in place of the tables that docs/commands.md has for readers of
  the repository.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = "docs"
COPIES = "repository"
"""The folder of the site that holds the copies."""

COMMANDS = "commands.md"
_GENERATED = re.compile(r"<!-- commands -->.*?<!-- end of commands -->", re.DOTALL)
_RENDERED = """
::: mkdocs-click
    :module: headgate.cli.main
    :command: main
    :prog_name: headgate
    :depth: 1

::: mkdocs-click
    :module: headgate_operator.cli.kubectl_plugin
    :command: main
    :prog_name: kubectl headgate
    :depth: 1
"""
_FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
_TARGET = re.compile(r"(?<=\]\()([^)\s#]+)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add a copy of everything outside of docs/ that a page links to, directly or by another copy."""
    waiting = [each.src_uri for each in files.documentation_pages()]
    known = set(waiting)
    while waiting:
        page = waiting.pop()
        for path in _links_out_of_docs(page, _read(page, files)):
            uri = _uri_of_copy(path)
            if uri not in known:
                known.add(uri)
                files.append(_copy(path, uri, config))
                waiting += [uri] if uri.endswith(".md") else []
    return files


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point the links that leave docs/ to the copies, and let mkdocs-click render the commands."""
    if page.file.src_uri == COMMANDS:
        markdown = _GENERATED.sub(_RENDERED, markdown)
    return relink(page.file.src_uri, markdown)


def relink(uri: str, text: str) -> str:
    """The page with every link to a file of the repository as a link within the site."""

    def within(match: re.Match[str]) -> str:
        path = _path_in_repository(uri, match[1])
        return match[1] if path is None else posixpath.relpath(_uri_of(path), posixpath.dirname(uri) or ".")

    pieces = _FENCED.split(text)
    return "".join(each if each.startswith("```") else _TARGET.sub(within, each) for each in pieces)


def _links_out_of_docs(uri: str, text: str) -> Iterator[str]:
    for target in _TARGET.findall(_FENCED.sub("", text)):
        path = _path_in_repository(uri, target)
        if path is not None and not path.startswith(f"{DOCS}/") and (ROOT / path).exists():
            yield path


def _path_in_repository(uri: str, target: str) -> str | None:
    """The path that a link on a page leads to, or None for a link to another site."""
    if "://" in target or target.startswith("mailto:"):
        return None
    folder = posixpath.dirname(_path_of(uri))
    return posixpath.normpath(posixpath.join(folder, target))


def _path_of(uri: str) -> str:
    """The path in the repository of a page of the site."""
    copied = uri.removeprefix(f"{COPIES}/")
    return f"{DOCS}/{uri}" if copied == uri else copied


def _uri_of(path: str) -> str:
    return path.removeprefix(f"{DOCS}/") if path.startswith(f"{DOCS}/") else _uri_of_copy(path)


def _uri_of_copy(path: str) -> str:
    return f"{COPIES}/{path}.md" if (ROOT / path).is_dir() else f"{COPIES}/{path}"


def _copy(path: str, uri: str, config: MkDocsConfig) -> File:
    if (ROOT / path).is_dir():
        return File.generated(config, uri, content=_listing(path))
    return File.generated(config, uri, abs_src_path=os.fspath(ROOT / path))


def _listing(folder: str) -> str:
    """A page that shows the files of a folder."""
    paths = sorted(each.relative_to(ROOT).as_posix() for each in (ROOT / folder).rglob("*") if each.is_file())
    parts = [f"## {path}\n\n````{Path(path).suffix[1:]}\n{(ROOT / path).read_text()}\n````\n" for path in paths]
    return "\n".join([f"# {folder}\n", *parts])


def _read(uri: str, files: Files) -> str:
    result = files.get_file_from_path(uri)
    return result.content_string if result is not None else ""
