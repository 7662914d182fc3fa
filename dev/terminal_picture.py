"""Draws terminals as one animated SVG: each line appears at its time, and all of it starts again at the end. Pure.

Where a reader prefers no motion, or a viewer draws no animation, all lines are there from the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

CHARACTER = 7.3
LINE_HEIGHT = 17
MARGIN = 16
HEAD = 30
END_S = 5.0
"""How long the last picture stays."""

_STYLE = """
  .card { fill: #0d1117; stroke: #3d444d; }
  .title { font: 12px system-ui, sans-serif; fill: #9198a1; }
  .line { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #e6edf3; white-space: pre; }
  .typed { fill: #7ee787; }
"""


@dataclass(frozen=True)
class Line:
    """A line of output, and when it came."""

    at_s: float
    text: str


@dataclass(frozen=True)
class Pane:
    """One terminal."""

    title: str
    lines: list[Line]

    @property
    def height(self) -> int:
        """As it is drawn."""
        return HEAD + LINE_HEIGHT * len(self.lines) + MARGIN


def build_picture(panes: Sequence[Pane]) -> str:
    """The SVG."""
    lines = [line for pane in panes for line in pane.lines]
    ends_s = max(line.at_s for line in lines) + END_S
    width = round(max(len(line.text) for line in lines) * CHARACTER + 2 * MARGIN)
    body: list[str] = []
    animations: dict[str, str] = {}
    top = 0
    for pane in panes:
        height = pane.height
        body.append(f'<rect class="card" x="0.5" y="{top + 0.5}" width="{width - 1}" height="{height - 1}" rx="8"/>')
        body.append(f'<text class="title" x="{MARGIN}" y="{top + 20}">{escape(pane.title)}</text>')
        body += _drawn(pane, top + HEAD + 10, ends_s, animations)
        top += height + 8
    style = (
        _STYLE
        + "".join(animations.values())
        + "  @media (prefers-reduced-motion) { text { animation: none !important; } }\n"
    )
    title = "A queue, a worker and a first message in two terminals"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top - 8}" width="{width}" height="{top - 8}" '
        f'role="img" aria-label="{title}">\n<title>{title}</title>\n<style>{style}</style>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _drawn(pane: Pane, top: int, ends_s: float, animations: dict[str, str]) -> Iterator[str]:
    for number, line in enumerate(pane.lines):
        if not line.text:
            continue
        name = f"t{round(line.at_s * 10)}"
        share = 100 * line.at_s / ends_s
        animations[name] = (
            f"  .{name} {{ animation: {name} {ends_s:.1f}s step-end infinite; }}"
            f" @keyframes {name} {{ 0% {{ opacity: 0; }} {share:.2f}% {{ opacity: 1; }} }}\n"
        )
        kind = "line typed" if line.text.startswith("$ ") else "line"
        words = escape(line.text, quote=False)
        place = f'x="{MARGIN}" y="{top + LINE_HEIGHT * number}"'
        yield f'<text class="{kind} {name}" {place} xml:space="preserve">{words}</text>'
