"""One watch, at the server's end: from a version on, with bookmarks, until its time is over.

Events carry numbers, as bytes of one connection keep their order: a client that receives number 3 before 2 waits for
2. It knows neither the network (`send` is passed in) nor the use of events.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from headgate_operator.cluster.port import Denied
from headgate_operator.cluster.requests import ApiResponse, as_denied
from headgate_operator.model.kinds import Document, ResourceKind
from tests.kit.simulated_cluster import refusals
from tests.kit.simulated_cluster.log import WriteEntry, event_of
from tests.kit.simulated_cluster.selecting import Selector
from tests.kit.simulated_cluster.server import ApiServer

BOOKMARK_EVERY_S: Final = 60.0

Event = Mapping[str, Any]


@dataclass(frozen=True)
class WatchRequest:
    """The changes of a kind after that version, with bookmarks, for a while."""

    kind: ResourceKind
    namespace: str | None = None
    version: str = ""
    labels: str = ""
    fields: str = ""
    within_s: float = 300

    def __str__(self) -> str:
        return f"watch {self.kind.resource}"

    @property
    def query(self) -> dict[str, str]:
        """As an API server takes it."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.version,
            "labelSelector": self.labels,
            "fieldSelector": self.fields,
            "timeoutSeconds": str(max(1, round(self.within_s))),
        }
        return {name: value for name, value in query.items() if value}


@dataclass(frozen=True)
class WatchEvent:
    """An event of a watch. A bookmark has a document with only its kind and resourceVersion."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    document: Document

    @property
    def version(self) -> str:
        """The version from which the watch can be resumed."""
        return str(self.document["metadata"]["resourceVersion"])


async def read_events(answers: AsyncIterator[Document | Denied]) -> AsyncIterator[WatchEvent | Denied]:
    """The events of an answer; ends with a Denied, or without one after a while."""
    async for answer in answers:
        if isinstance(answer, Denied):
            yield answer
            return
        if answer["type"] == "ERROR":
            yield as_denied(ApiResponse(int(answer["object"].get("code", 500)), answer["object"]))
            return
        yield WatchEvent(answer["type"], answer["object"])


class Watcher:
    """The events that one watch still has to get."""

    def __init__(self, server: ApiServer, request: WatchRequest, send: Callable[[int, Event | None], None]) -> None:
        self._server = server
        self.request = request
        self._send = send
        self._number = 0
        self.open = True

    def begin(self) -> None:
        """Send the events since its version, or all objects if it names none."""
        wanted = self.request.version
        if self.request.kind not in self._server.kinds:
            self._fail(refusals.unknown_kind())
        elif wanted in ("", "0"):
            selector = Selector(self.request.labels, self.request.fields)
            for _, document in list(self._server.all(self.request.kind, self.request.namespace)):
                if selector.selects(document):
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
        request = self.request
        event = event_of(entry, request.kind, request.namespace, Selector(request.labels, request.fields))
        if event is not None:
            self.send_event(event)

    def bookmark(self) -> None:
        """Send its position."""
        kind = self.request.kind
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
