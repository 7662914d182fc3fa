"""One watch, at the server's end: from a version on, with bookmarks, until its time is over.

Events carry numbers, as bytes of one connection keep their order: a client that receives number 3 before 2 waits for
2. It knows neither the network (`send` is passed in) nor the use of events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from headgate_operator.cluster.requests import ApiRequest
from tests.kit.simulated_cluster import refusals
from tests.kit.simulated_cluster.log import WriteEntry, event_of
from tests.kit.simulated_cluster.selecting import selects
from tests.kit.simulated_cluster.server import ApiServer

BOOKMARK_EVERY_S: Final = 60.0

Event = Mapping[str, Any]


class Watcher:
    """The events that one watch still has to get."""

    def __init__(self, server: ApiServer, request: ApiRequest, send: Callable[[int, Event | None], None]) -> None:
        self._server = server
        self._request = request
        self._send = send
        self._number = 0
        self.open = True

    def begin(self) -> None:
        """Send the events since its version, or all objects if it names none."""
        wanted = self._request.query.get("resourceVersion", "")
        if self._request.kind not in self._server.kinds:
            self._fail(refusals.unknown_kind())
        elif wanted in ("", "0"):
            selector = self._request.query.get("labelSelector", "")
            for _, document in list(self._server.all(self._request.kind, self._request.namespace)):
                if selects(selector, document):
                    self.send_event({"type": "ADDED", "object": document})
        elif int(wanted) < self._server.log.oldest:
            self._fail(refusals.too_old(wanted, self._server.log.oldest))
        else:
            for entry in self._server.log.after(int(wanted)):
                self.note(entry)

    def note(self, entry: WriteEntry) -> None:
        """Something was written."""
        if not self.open:
            return
        request = self._request
        event = event_of(entry, request.kind, request.namespace, request.query.get("labelSelector", ""))
        if event is not None:
            self.send_event(event)

    def bookmark(self) -> None:
        """Send its position."""
        kind = self._request.kind
        metadata = {"resourceVersion": str(self._server.log.version)}
        self.send_event(
            {
                "type": "BOOKMARK",
                "object": {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata},
            }
        )

    def send_event(self, event: Event | None) -> None:
        """Send the next event; None ends it."""
        if self.open:
            self._number += 1
            self.open = event is not None
            self._send(self._number, event)

    def _fail(self, refused: refusals.Refusal) -> None:
        self.send_event({"type": "ERROR", "object": refused.answer.body})
        self.send_event(None)
