"""The screen of `headgate top`, as pure functions: what is known, the keys, and the lines for a size of terminal.

It takes the documents of headgate.cli.documents and gives styled lines; headgate.cli.terminal.live shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from headgate.client.model.times import age

Queue = Mapping[str, Any]

HISTORY_MAX: Final = 240
BLOCKS: Final = "▁▂▃▄▅▆▇█"
HEAD_LINES: Final = 2
FOOT_LINES: Final = 1
OLD_S: Final = 60
VERY_OLD_S: Final = 600
LIST_KEYS: Final = "↑↓ select  enter open  sort: b backlog a age f in flight r rate n name  q quit"
LANE_KEYS: Final = "↑↓ scroll   esc back   q quit"


class Line(NamedTuple):
    text: str
    style: str = ""


def _number(name: str) -> Callable[[Queue], float]:
    return lambda queue: -float(queue[name] or 0)


SORTS: Final[Mapping[str, tuple[str, Callable[[Queue], Any]]]] = {
    "b": ("backlog", lambda queue: (_number("backlog")(queue), _number("oldest_age_s")(queue))),
    "a": ("age", _number("oldest_age_s")),
    "f": ("in flight", _number("in_flight")),
    "r": ("rate", _number("rate_per_s")),
    "n": ("name", lambda queue: queue["queue"]),
}
"""Sort orders by their keys."""


@dataclass(frozen=True)
class Screen:
    queues: Sequence[Queue] = ()
    history: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Of each queue: backlog and rate at each reading, the newest last."""
    sort: str = "b"
    selected: str | None = None
    opened: str | None = None
    lanes: Mapping[str, Any] | None = None
    """The stats of the opened queue, once they are read."""
    scroll: int = 0
    error: str = ""
    is_over: bool = False

    def sorted(self) -> list[Queue]:
        return sorted(self.queues, key=lambda queue: (SORTS[self.sort][1](queue), queue["queue"]))


def with_queues(screen: Screen, queues: Sequence[Queue]) -> Screen:
    history = {
        queue["queue"]: (
            *screen.history.get(queue["queue"], ())[-HISTORY_MAX + 1 :],
            (float(queue["backlog"] or 0), float(queue["rate_per_s"])),
        )
        for queue in queues
    }
    names = {queue["queue"] for queue in queues}
    updated = replace(screen, queues=tuple(queues), history=history, error="")
    if screen.selected not in names:
        ordered = updated.sorted()
        updated = replace(updated, selected=ordered[0]["queue"] if ordered else None)
    return updated


def press(screen: Screen, key: str, height: int) -> Screen:
    if key == "q":
        return replace(screen, is_over=True)
    if screen.opened is not None:
        return _press_opened(screen, key, height)
    if key in SORTS:
        return replace(screen, sort=key)
    if key in ("enter", "right") and screen.selected is not None:
        return replace(screen, opened=screen.selected, lanes=None, scroll=0, error="")
    names = [queue["queue"] for queue in screen.sorted()]
    if not names:
        return screen
    at = names.index(screen.selected) if screen.selected in names else 0
    page = max(1, height - HEAD_LINES - FOOT_LINES - 1)
    target = {
        "up": at - 1,
        "k": at - 1,
        "down": at + 1,
        "j": at + 1,
        "page up": at - page,
        "page down": at + page,
        "home": 0,
        "end": len(names) - 1,
    }.get(key, at)
    return replace(screen, selected=names[min(max(target, 0), len(names) - 1)])


def _press_opened(screen: Screen, key: str, height: int) -> Screen:
    if key in ("escape", "left", "backspace"):
        return replace(screen, opened=None, lanes=None, scroll=0)
    step = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -height, "page down": height}.get(key, 0)
    lanes = len(screen.lanes["lanes"]) if screen.lanes is not None else 0
    return replace(screen, scroll=min(max(0, screen.scroll + step), max(0, lanes - 1)))


def sparkline(values: Sequence[float], width: int) -> str:
    """The last values as blocks, from 0 to their maximum; blank where there is none yet."""
    shown = values[-width:]
    top = max(shown, default=0)
    blocks = "".join(
        BLOCKS[0] if not top or value <= 0 else BLOCKS[max(1, round(value / top * (len(BLOCKS) - 1)))]
        for value in shown
    )
    return blocks.rjust(width)


# ---- lines


def lines(screen: Screen, width: int, height: int) -> list[Line]:
    """The whole screen: at most `height` lines of at most `width` characters."""
    body_height = max(1, height - HEAD_LINES - FOOT_LINES)
    is_opened = screen.opened is not None
    title, *body = (_opened if is_opened else _list)(screen, width, body_height)
    keys = LANE_KEYS if is_opened else LIST_KEYS
    error = Line(f"! {screen.error}", "bold red") if screen.error else Line("")
    shown = [title, error, *body[:body_height]]
    blank = [Line("")] * (height - FOOT_LINES - len(shown))
    return [Line(each.text[:width], each.style) for each in (*shown, *blank, Line(keys, "dim"))][:height]


class _Column(NamedTuple):
    head: str
    width: int
    text: Callable[[Screen, Queue], str]
    is_left: bool = False


def _history(screen: Screen, queue: Queue, index: int, width: int) -> str:
    return sparkline([sample[index] for sample in screen.history.get(queue["queue"], ())], width)


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else age(round(seconds * 1_000_000))


SPARK: Final = 10
_COLUMNS: Final = (
    _Column("backlog", 9, lambda _, queue: "-" if queue["backlog"] is None else f"{queue['backlog']:,}"),
    _Column("", SPARK, lambda screen, queue: _history(screen, queue, 0, SPARK), is_left=True),
    _Column("rate/s", 7, lambda _, queue: f"{queue['rate_per_s']:g}"),
    _Column("", SPARK, lambda screen, queue: _history(screen, queue, 1, SPARK), is_left=True),
    _Column("oldest", 7, lambda _, queue: _duration(queue["oldest_age_s"])),
    _Column("in flight", 9, lambda _, queue: f"{queue['in_flight']:,}"),
)
_WIDE_COLUMNS: Final = (
    _Column("workers", 7, lambda _, queue: str(queue["workers"])),
    _Column("lanes", 6, lambda _, queue: str(queue["lanes"])),
    _Column("blocked", 7, lambda _, queue: str(queue["lanes_blocked"])),
)
NAME_WIDTH_MIN: Final = 16
_NARROW: Final = sum(column.width + 1 for column in _COLUMNS) + NAME_WIDTH_MIN
_WIDE: Final = _NARROW + sum(column.width + 1 for column in _WIDE_COLUMNS) + 8


def _list(screen: Screen, width: int, height: int) -> list[Line]:
    ordered = screen.sorted()
    backlog = sum(queue["backlog"] or 0 for queue in ordered)
    title = f"headgate top   {len(ordered)} queues   backlog {backlog:,}   sorted by {SORTS[screen.sort][0]}"
    if not ordered:
        return [Line(title, "bold"), Line("no queues")]
    columns = (*_COLUMNS, *_WIDE_COLUMNS) if width >= _WIDE else _COLUMNS
    name_width = max(NAME_WIDTH_MIN, width - sum(column.width + 1 for column in columns))
    head = "queue".ljust(name_width) + "".join(
        " " + (column.head.ljust if column.is_left else column.head.rjust)(column.width) for column in columns
    )
    rows = max(1, height - 1)
    at = next((number for number, queue in enumerate(ordered) if queue["queue"] == screen.selected), 0)
    first = min(max(0, at - rows + 1), max(0, len(ordered) - rows))
    body = [_row(screen, queue, columns, name_width) for queue in ordered[first : first + rows]]
    return [Line(title, "bold"), Line(head, "underline"), *body]


def _row(screen: Screen, queue: Queue, columns: Sequence[_Column], name_width: int) -> Line:
    name = str(queue["queue"])
    note = " (no workers)" if not queue["workers"] else ""
    if len(name) + len(note) > name_width:
        note = " !" if note else ""
    if len(name) + len(note) > name_width:
        name = name[: name_width - len(note) - 1] + "…"
    cells = "".join(
        " " + (text.ljust if column.is_left else text.rjust)(column.width)[: column.width]
        for column in columns
        for text in (column.text(screen, queue),)
    )
    style = "reverse" if queue["queue"] == screen.selected else _style(queue)
    return Line((name + note).ljust(name_width) + cells, style)


def _style(queue: Queue) -> str:
    oldest_s = queue["oldest_age_s"] or 0
    if oldest_s >= VERY_OLD_S or queue["lanes_blocked"]:
        return "red"
    if oldest_s >= OLD_S:
        return "yellow"
    return "" if queue["workers"] else "dim"


def _opened(screen: Screen, width: int, height: int) -> list[Line]:
    stats = screen.lanes
    if stats is None:
        return [Line(f"{screen.opened}   reading ...", "bold")]
    trend_width = min(60, max(10, width - 20))
    samples = screen.history.get(str(screen.opened), ())
    title = (
        f"{screen.opened}   backlog {stats['backlog']:,}   in flight {stats['in_flight']:,}"
        f"   delayed {stats['delayed']:,}   oldest {_duration(stats['oldest_age_s'])}"
    )
    head = [
        Line(f"backlog  {sparkline([sample[0] for sample in samples], trend_width)}", "cyan"),
        Line(f"rate/s   {sparkline([sample[1] for sample in samples], trend_width)}", "green"),
        Line(""),
        Line(_lane_text("lane", "state", "owner", "lease", "oldest", "in flight", "hidden"), "underline"),
    ]
    rows = [_lane(lane, str(stats["at"])) for lane in stats["lanes"] if lane["state"] != "retired"]
    left = max(1, height - len(head))
    return [Line(title, "bold"), *head, *rows[screen.scroll : screen.scroll + left]]


def _lane_text(*cells: str) -> str:
    widths = (9, 10, 10, 8, 9, 10, 8)
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))


def _lane(lane: Mapping[str, Any], at: str) -> Line:
    text = _lane_text(
        f"{lane['generation']}/{lane['shard']}",
        lane["state"],
        (lane["owner"] or "-")[:8],
        _duration(lane["lease_left_s"]),
        _duration(_age_s(lane["oldest_due_at"], at)),
        "-" if lane["in_flight"] is None else str(lane["in_flight"]),
        str(lane["hidden"]),
    )
    return Line(text, "red" if "stopped" in lane["state"] or "blocked" in lane["state"] else "")


def _age_s(time: str | None, now: str) -> float | None:
    from datetime import datetime

    if time is None:
        return None
    return max(0.0, (datetime.fromisoformat(now) - datetime.fromisoformat(time)).total_seconds())
