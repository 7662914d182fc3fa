"""Draws docs/pictures/measured.svg from the kept results: bars of ours next to the baseline of the same run. Pure.

The picture has a background of its own and a second set of colours for dark screens, so that it reads well on either.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from bench.headlines import IN_FULL, IN_SHORT, Headline, Measured, Results, measured
from bench.report import number

WIDTH: Final = 760
LEFT: Final = 24
BAR_LEFT: Final = 330
BAR_WIDTH_MAX: Final = 290
BAR_HEIGHT: Final = 14
GROUP_HEIGHT: Final = 50

_STYLE: Final = """
  .card { fill: #ffffff; stroke: #d0d7de; }
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; }
  .small { font-size: 12px; fill: #59636e; }
  .ours { fill: #0969da; }
  .theirs { fill: #afb8c1; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #151b23; stroke: #3d444d; }
    text { fill: #f0f6fc; }
    .small { fill: #9198a1; }
    .ours { fill: #4493f8; }
    .theirs { fill: #656c76; }
  }
"""


def build_plot(results: Results) -> str:
    """The picture as SVG."""
    rates = [measured(results, each) for each in _rates()]
    deep = measured(results, IN_SHORT[2])
    lines: list[str] = []
    top = 36
    lines.append(_text(LEFT, top, "Messages or updates per second (more is better)", "title"))
    for each in rates:
        lines += _group(top + 14, each, max(one.value for one in rates))
        top += GROUP_HEIGHT
    top += 40
    lines.append(_text(LEFT, top, "Time to receive 100 messages, median (flat is better)", "title"))
    lines += _depths(top + 14, deep)
    height = top + GROUP_HEIGHT + 20
    title = "Headgate beside the baseline of the same run"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{title}">\n<title>{title}</title>\n<style>{_STYLE}</style>\n'
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>\n'
        + "\n".join(lines)
        + "\n</svg>\n"
    )


def _rates() -> list[Headline]:
    """The headlines whose baseline does the same work, per second."""
    wanted = ("put, 1,000 callers", "updates of one counter key, 1,000 callers", "read a million messages with Spark")
    return [IN_SHORT[0], *(each for each in IN_FULL if each.subject in wanted)]


def _group(top: int, one: Measured, largest: float) -> Iterator[str]:
    subject = one.headline.subject
    yield _text(LEFT, top + 14, subject[0].upper() + subject[1:])
    yield _text(LEFT, top + 32, f"beside {one.headline.baseline}", "small")
    yield from _bar(top + 3, "ours", one.value / largest, number(one.value))
    yield from _bar(top + 21, "theirs", one.baseline / largest, number(one.baseline))


def _depths(top: int, deep: Measured) -> Iterator[str]:
    largest = max(deep.value, deep.baseline)
    yield _text(LEFT, top + 14, "After 5,000,000 messages have passed")
    yield _text(LEFT, top + 32, "after 1,000", "small")
    yield from _bar(top + 3, "ours", deep.value / largest, deep.shown)
    yield from _bar(top + 21, "theirs", deep.baseline / largest, f"{number(deep.baseline)} ms")


def _bar(top: int, kind: str, share: float, label: str) -> Iterator[str]:
    width = max(2, round(BAR_WIDTH_MAX * share))
    yield f'<rect class="{kind}" x="{BAR_LEFT}" y="{top}" width="{width}" height="{BAR_HEIGHT}" rx="2"/>'
    yield _text(BAR_LEFT + width + 8, top + 12, label)


def _text(x: int, y: int, words: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x}" y="{y}">{escape(words)}</text>'
