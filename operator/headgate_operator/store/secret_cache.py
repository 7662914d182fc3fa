"""Secrets that lead to Cassandra, read one by one and kept for a little: they are never listed and never watched.

It knows when each Secret was read, and nothing about its keys. A Secret that could not be read, for any reason except
that it does not exist, is unknown, and never counts as missing.

A decision uses a Secret that was read within the last minute, and one older than `FRESH_S` is read again in
the background. Otherwise each decision in a namespace would wait for the API server, every 20 s, and longest when a
thousand wait. If the answer differs, the keys of its users are queued.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from headgate.process.background_tasks import SharedWork
from headgate_operator.cluster.port import Denial, Denied
from headgate_operator.cluster.requests import ClusterPort
from headgate_operator.manifests.pod import CONNECTION_FILES, CONNECTION_KEYS
from headgate_operator.model.kinds import SECRET, Document, ObjectAddress

FRESH_S: Final = 20.0
BELIEVED_S: Final = 60.0
KEPT_MAX: Final = 5_000

Place = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True)
class SecretRead:
    """One Secret as it was read. No document: it is not there."""

    namespace: str
    name: str
    document: Document | None
    digest: str
    """The digest of its content: a copy has its source's."""

    @property
    def values(self) -> dict[str, str]:
        return {} if self.document is None else plain_values(self.document)


class Secrets:
    def __init__(
        self, port: ClusterPort, *, now_s: Callable[[], float], changed: Callable[[Place], None] = lambda _: None
    ) -> None:
        self._port = port
        self._now_s = now_s
        self._changed = changed
        self._read: dict[Place, tuple[float, SecretRead]] = {}
        self._reading = SharedWork[Place, SecretRead | Denied]("read of a Secret")

    def fork(self) -> Secrets:
        """With what was read so far, and from here on apart: what the other one reads changes nothing here."""
        made = Secrets(self._port, now_s=self._now_s)
        made._read = dict(self._read)
        return made

    async def read_cached(self, namespace: str, name: str) -> SecretRead | Denied:
        """The Secret as last read, without waiting if it is known; a due read runs in the background."""
        place = (namespace, name)
        age_s = self._age_s(place)
        if age_s >= BELIEVED_S:
            return await self.read(namespace, name)
        if age_s >= FRESH_S:
            self._shared(place)
        return self._read[place][1]

    async def read(self, namespace: str, name: str, *, within_s: float = FRESH_S) -> SecretRead | Denied:
        """The Secret, at most this old; concurrent callers wait for the same read."""
        place = (namespace, name)
        if self._age_s(place) < within_s:
            return self._read[place][1]
        return await self._shared(place)

    def known(self, namespace: str, name: str) -> SecretRead | None:
        entry = self._read.get((namespace, name))
        return None if entry is None else entry[1]

    def note(self, document: Document) -> None:
        metadata = document["metadata"]
        self._wrote(secret_read(str(metadata["namespace"]), str(metadata["name"]), document))

    def note_gone(self, namespace: str, name: str) -> None:
        self._wrote(secret_read(namespace, name, None))

    def oldest(self, count: int) -> list[Place]:
        """Those that were read longest ago: their turn comes first."""
        ordered = sorted(self._read, key=lambda place: (self._read[place][0], place))
        return ordered[:count]

    def _age_s(self, place: Place) -> float:
        known = self._read.get(place)
        return math.inf if known is None else self._now_s() - known[0]

    def _shared(self, place: Place) -> asyncio.Future[SecretRead | Denied]:
        return self._reading.run(place, lambda: self._get(place))

    async def _get(self, place: Place) -> SecretRead | Denied:
        answer = await self._port.get(ObjectAddress(SECRET, *place))
        before = self.known(*place)
        if before is not None and not self._reading.is_current(place):
            return before  # we wrote it meanwhile: the answer may be from before
        if isinstance(answer, Denied):
            if answer.denial is not Denial.NOT_FOUND:
                return answer
            read = secret_read(*place, None)
        else:
            read = secret_read(*place, answer.document)
        self._keep(read)
        if before is not None and before.digest != read.digest:
            self._changed(place)
        return read

    def _wrote(self, read: SecretRead) -> None:
        self._reading.forget((read.namespace, read.name))  # what is being read is from before, perhaps
        self._keep(read)

    def _keep(self, read: SecretRead) -> None:
        place = (read.namespace, read.name)
        self._read.pop(place, None)
        self._read[place] = (self._now_s(), read)
        while len(self._read) > KEPT_MAX:
            del self._read[next(iter(self._read))]


def secret_read(namespace: str, name: str, document: Document | None) -> SecretRead:
    return SecretRead(namespace, name, document, "" if document is None else digest_of(plain_values(document)))


def plain_values(document: Document) -> dict[str, str]:
    """The content of a Secret, decoded, without values that are no text."""
    values = dict(document.get("stringData") or {})
    for key, encoded in (document.get("data") or {}).items():
        try:
            values[key] = base64.b64decode(encoded or "", validate=True).decode()
        except ValueError:
            continue
    return values


def digest_of(values: Mapping[str, str]) -> str:
    """A digest that distinguishes connections without revealing them; other keys of a Secret are ignored."""
    digest = hashlib.sha256()
    for key in sorted(values.keys() & {*CONNECTION_KEYS, *CONNECTION_FILES}):
        digest.update(f"{len(key)}:{key}{len(values[key])}:{values[key]}".encode())
    return digest.hexdigest()[:16]
