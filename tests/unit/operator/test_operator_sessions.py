"""Sessions, Secrets, failures: one session for one content, one attempt for many requests, and reasons."""

from __future__ import annotations

import asyncio
import base64
import os
import stat
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dev.servers.cassandra.tls import write_certificates
from headgate.api.resources.reasons import Reason
from headgate.applying.decide_steps import TooManyTables
from headgate.errors import HeadgateError, Unavailable
from headgate.store.cassandra.settings import ConnectionSettings, InvalidConnectionSettings
from headgate.store.catalogue.entry import OwnedByAnother, WrongDataCenter
from headgate.store.clock.clock import ClockNotTrusted
from headgate.store.schema import KeyspaceUnfit, SchemaRightsMissing
from headgate_operator.cluster.port import ApiObject, Denial, Denied
from headgate_operator.manifests.pod import CONNECTION_FILES, CONNECTION_KEYS
from headgate_operator.store.secret_cache import BELIEVED_S, FRESH_S, SecretRead, Secrets, digest_of, plain_values
from headgate_operator.store.sessions import (
    AGAIN_S,
    IDLE_S,
    OPEN_WITHIN_S,
    PATIENCE_S,
    PER_NAMESPACE_MAX,
    ConnectionOpening,
    Sessions,
    TooManyConnections,
    failure_of,
)
from tests.kit.simulated_world import World

VALUES = {"CONTACT_POINTS": "10.0.0.1"}


class Cassandras:
    """The open sessions, and all that were opened."""

    def __init__(self) -> None:
        self.opened: list[ConnectionSettings] = []
        self.closed = 0
        self.fails = False

    async def open(self, settings: ConnectionSettings) -> Any:
        self.opened.append(settings)
        await asyncio.sleep(0.5)
        if self.fails:
            raise Unavailable("No server answers")
        return SimpleNamespace(data_center="dc1", close=self._close), SimpleNamespace(nodes_in=self._nodes_in)

    async def _nodes_in(self, _: str) -> int:
        return 3

    async def _close(self) -> None:
        self.closed += 1


def run(work: Coroutine[Any, Any, None]) -> None:
    with World(1) as world:
        world.run(work)


def sessions_of(cassandras: Cassandras, **how: Any) -> Sessions:
    return Sessions(cassandras.open, now_s=lambda: asyncio.get_running_loop().time(), **how)


def test_many_that_ask_for_one_content_are_one_attempt() -> None:
    async def work() -> None:
        cassandras = Cassandras()
        sessions = sessions_of(cassandras)
        result = await asyncio.gather(*(sessions.reach("a", VALUES) for _ in range(50)))
        assert (1, 1, 3) == (len(cassandras.opened), len({id(each) for each in result}), result[0].nodes)

    run(work())


def test_one_that_could_not_be_opened_is_not_tried_again_for_a_few_seconds() -> None:
    async def work() -> None:
        cassandras = Cassandras()
        cassandras.fails = True
        sessions = sessions_of(cassandras)
        for _ in range(5):
            with pytest.raises(Unavailable):
                await sessions.reach("a", VALUES)
        assert 1 == len(cassandras.opened)
        await asyncio.sleep(AGAIN_S)
        cassandras.fails = False
        await sessions.reach("a", VALUES)
        assert 2 == len(cassandras.opened)

    run(work())


def test_one_that_nobody_uses_makes_room_and_one_in_use_does_not() -> None:
    async def work() -> None:
        cassandras = Cassandras()
        sessions = sessions_of(cassandras, most=2)
        await sessions.reach("a", VALUES, owner="shop")
        await sessions.reach("b", VALUES, owner="shop")
        with pytest.raises(TooManyConnections):
            await sessions.reach("c", VALUES, owner="shop")
        await asyncio.sleep(IDLE_S)
        assert sessions.of("b") is not None
        await sessions.reach("c", VALUES, owner="shop")
        assert (None, 1) == (sessions.of("a"), cassandras.closed)

    run(work())


def test_a_hostile_namespace_takes_no_place_of_others_and_never_the_chart_s() -> None:
    async def work() -> None:
        cassandras = Cassandras()
        sessions = sessions_of(cassandras, most=PER_NAMESPACE_MAX + 1)
        result = await asyncio.gather(
            *(sessions.reach(f"evil-{number}", VALUES, owner="evil") for number in range(50)), return_exceptions=True
        )
        refused = [each for each in result if isinstance(each, TooManyConnections)]
        assert (50 - PER_NAMESPACE_MAX, PER_NAMESPACE_MAX) == (len(refused), len(cassandras.opened))
        assert "namespace=evil" in str(refused[0])
        await sessions.reach("a", VALUES, owner="shop")
        await sessions.reach("chart", VALUES)
        with pytest.raises(TooManyConnections):
            await sessions.reach("b", VALUES, owner="another")

    run(work())


def test_nobody_waits_long_for_a_cassandra_that_swallows_packets() -> None:
    async def work() -> None:
        ended: list[str] = []
        loop = asyncio.get_running_loop()

        async def hang(_: Any) -> Any:
            await asyncio.Event().wait()

        sessions = Sessions(hang, now_s=loop.time, ended=ended.append)
        began_s = loop.time()
        result = await asyncio.gather(
            *(sessions.reach("a", VALUES, owner="evil") for _ in range(20)), return_exceptions=True
        )
        assert ([ConnectionOpening] * 20, PATIENCE_S) == ([type(each) for each in result], loop.time() - began_s)
        for _ in range(20):
            with pytest.raises(ConnectionOpening):
                await sessions.reach("a", VALUES, owner="evil")
        assert PATIENCE_S == loop.time() - began_s
        await asyncio.sleep(OPEN_WITHIN_S)
        assert ["a"] == ended
        with pytest.raises(Unavailable, match="Cassandra does not answer"):
            await sessions.reach("a", VALUES, owner="evil")
        await asyncio.sleep(AGAIN_S)
        with pytest.raises(ConnectionOpening) as again:
            await sessions.reach("a", VALUES, owner="evil")
        assert isinstance(again.value.previous, Unavailable)
        await sessions.close()

    run(work())


def test_of_contents_that_are_changed_again_and_again_nothing_is_kept() -> None:
    async def work() -> None:
        cassandras = Cassandras()
        cassandras.fails = True
        sessions = sessions_of(cassandras)
        for number in range(20):
            with pytest.raises(Unavailable):
                await sessions.reach(f"evil-{number}", VALUES, owner="evil")
            await asyncio.sleep(IDLE_S)
        assert sessions.known_total <= 2

    run(work())


def test_certificates_become_files_that_nobody_else_may_read(tmp_path: Path) -> None:
    async def work() -> None:
        cassandras = Cassandras()
        sessions = sessions_of(cassandras, folder=tmp_path)
        pem = "no certificate"
        with pytest.raises(InvalidConnectionSettings):  # it is a file, and holds no certificate
            await sessions.reach("a", {**VALUES, "USE_SSL": "true", "ca.crt": pem})
        written = tmp_path / "a" / "ca.crt"
        assert (pem, 0o600) == (written.read_text(), stat.S_IMODE(written.stat().st_mode))

    run(work())


HOSTILE_SECRET = """
import asyncio, sys
from pathlib import Path
from types import SimpleNamespace
from headgate_operator.store.sessions import Sessions

async def reach(name, pipe, folder):
    async def nodes_in(_):
        return 3

    async def open_(settings):
        print(settings.tls)
        return SimpleNamespace(data_center="dc1"), SimpleNamespace(nodes_in=nodes_in)

    sessions = Sessions(open_, now_s=asyncio.get_running_loop().time, folder=Path(folder))
    values = {"CONTACT_POINTS": "10.0.0.1", "USE_SSL": "true", name: pipe}
    print((await sessions.reach("a", values)).nodes)

asyncio.run(reach(*sys.argv[1:]))
"""


@pytest.mark.parametrize("name", ["SSL_CA", "SSL_DIRECTORY"])
def test_a_secret_cannot_make_the_operator_open_a_file_of_its_own_pod(name: str, tmp_path: Path) -> None:
    files = tmp_path / "of-the-pod"
    files.mkdir()
    for file in ("ca.crt", "tls.crt", "tls.key"):
        (files / file).write_text("not a certificate")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    path = pipe if name == "SSL_CA" else files
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE_SECRET, name, str(path), str(tmp_path / "own")],
        capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    nothing_named = "TlsSettings(ca=None, certificate=None, key=None)"
    assert (f"{nothing_named}\n3\n", "") == (done.stdout, done.stderr)


HOSTILE_KEY = """
import asyncio, base64, sys
from pathlib import Path
from headgate_operator.store.sessions import Sessions

def der(tag, *parts):
    body = b"".join(parts)
    return bytes([tag, len(body)] if len(body) < 128 else [tag, 0x81, len(body)]) + body

def oid(text):
    return der(6, bytes.fromhex(text))

rounds = der(2, (2**31 - 1).to_bytes(4, "big"))
digest = der(0x30, oid("2a864886f70d0209"), der(5))
kdf = der(0x30, oid("2a864886f70d01050c"), der(0x30, der(4, b"s" * 16), rounds, digest))
cipher = der(0x30, oid("60864801650304012a"), der(4, b"i" * 16))
key = der(0x30, der(0x30, oid("2a864886f70d01050d"), der(0x30, kdf, cipher)), der(4, b"x" * 64))
label = "ENCRYPTED PRIVATE KEY-----"
pem = f"-----BEGIN {label}\\n{base64.encodebytes(key).decode()}-----END {label}\\n"

async def reach(certificate, folder):
    sessions = Sessions(None, now_s=asyncio.get_running_loop().time, folder=Path(folder))
    values = {"CONTACT_POINTS": "10.0.0.1", "USE_SSL": "true", "tls.key": pem}
    values["tls.crt"] = Path(certificate).read_text()
    try:
        await sessions.reach("a", values)
    except Exception as error:
        print(type(error).__name__)

asyncio.run(reach(*sys.argv[1:]))
"""


def test_a_key_that_takes_hours_to_decrypt_does_not_hold_the_operator_up(tmp_path: Path) -> None:
    write_certificates(tmp_path, ())
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE_KEY, str(tmp_path / "tls.crt"), str(tmp_path / "own")],
        capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    assert ("InvalidConnectionSettings\n", "") == (done.stdout, done.stderr)


HOSTILE_SETTINGS = """
import sys
from headgate.store.cassandra.settings import InvalidConnectionSettings, read_secret_settings

hostile = {"points": ":" * 500_000 + "!", "many": "a," * 500_000, "long": "a" * 500_000 + "-", "open": "[" * 500_000}
try:
    read_secret_settings({"CONTACT_POINTS": hostile[sys.argv[1]]})
except InvalidConnectionSettings as error:
    print(len(str(error)) < 1_000)
"""


@pytest.mark.parametrize("which", ["points", "many", "long", "open"])
def test_contact_points_that_take_long_to_parse_do_not_hold_the_operator_up(which: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE_SETTINGS, which], capture_output=True, text=True, check=False, timeout=20
    )
    assert ("True\n", "") == (done.stdout, done.stderr)


def test_every_value_of_a_secret_that_is_read_counts_in_its_digest() -> None:
    without = digest_of(VALUES)
    assert [] == [
        name for name in (*CONNECTION_KEYS, *CONNECTION_FILES) if without == digest_of({**VALUES, name: "x"})
    ]
    assert without == digest_of({**VALUES, "SSL_CA": "/proc/self/fd/1", "SSL_DIRECTORY": "/etc"})


class Port:
    """A cluster with one Secret."""

    def __init__(self) -> None:
        self.asked = 0
        self.denial: Denial | None = None
        self.values = dict(VALUES)

    async def get(self, at: Any, **_: Any) -> ApiObject | Denied:
        self.asked += 1
        await asyncio.sleep(0.1)
        if self.denial is not None:
            return Denied(self.denial, 0, "", "")
        data = {name: base64.b64encode(value.encode()).decode() for name, value in self.values.items()}
        return ApiObject({"metadata": {"namespace": at.namespace, "name": at.name}, "data": data})


def test_a_secret_is_read_once_for_all_that_ask_and_again_when_it_is_old() -> None:
    async def work() -> None:
        port = Port()
        secrets = Secrets(cast(Any, port), now_s=lambda: asyncio.get_running_loop().time())
        await asyncio.gather(*(secrets.read("shop", "cassandra") for _ in range(20)))
        assert 1 == port.asked
        await asyncio.sleep(FRESH_S)
        port.values["PASSWORD"] = "new"
        before = secrets.known("shop", "cassandra")
        after = await secrets.read("shop", "cassandra")
        assert before is not None
        assert not isinstance(after, Denied)
        assert before.digest != after.digest

    run(work())


class Report:
    """One Secret, and the parts that are notified of its change."""

    def __init__(self) -> None:
        self.port = Port()
        self.changed: list[tuple[str, str]] = []
        self.secrets = Secrets(
            cast(Any, self.port), now_s=lambda: asyncio.get_running_loop().time(), changed=self.changed.append
        )

    async def read_secret(self) -> SecretRead:
        result = await self.secrets.read_cached("shop", "cassandra")
        assert not isinstance(result, Denied)
        return result


def test_a_decision_does_not_wait_for_a_secret_that_is_known_and_is_reported_when_it_states_something_else() -> None:
    async def work() -> None:
        record = Report()
        first = await record.read_secret()
        record.port.values["PASSWORD"] = "new"
        await asyncio.sleep(FRESH_S)
        began_s = asyncio.get_running_loop().time()
        meanwhile = [await record.read_secret() for _ in range(20)]
        assert (0.0, {first.digest}) == (
            asyncio.get_running_loop().time() - began_s, {each.digest for each in meanwhile},
        )  # fmt: skip
        assert [] == record.changed
        await asyncio.sleep(1)
        after = await record.read_secret()
        assert (2, [("shop", "cassandra")]) == (record.port.asked, record.changed)
        assert first.digest != after.digest

    run(work())


def test_what_was_read_too_long_ago_is_waited_for() -> None:
    async def work() -> None:
        record = Report()
        first = await record.read_secret()
        record.port.values["PASSWORD"] = "new"
        await asyncio.sleep(BELIEVED_S)
        after = await record.read_secret()
        assert first.digest != after.digest

    run(work())


def test_what_was_asked_for_before_a_write_of_our_own_does_not_take_its_place() -> None:
    async def work() -> None:
        record = Report()
        await record.read_secret()
        await asyncio.sleep(FRESH_S)
        await record.read_secret()  # and it is read again, by a request older than the following
        data = {"CONTACT_POINTS": base64.b64encode(b"10.0.0.2").decode()}
        record.secrets.note({"metadata": {"namespace": "shop", "name": "cassandra"}, "data": data})
        await asyncio.sleep(1)
        after = await record.read_secret()
        assert ({"CONTACT_POINTS": "10.0.0.2"}, []) == (after.values, record.changed)

    run(work())


def test_a_secret_that_cannot_be_read_is_not_taken_for_missing() -> None:
    async def work() -> None:
        port = Port()
        secrets = Secrets(cast(Any, port), now_s=lambda: asyncio.get_running_loop().time())
        port.denial = Denial.UNKNOWN
        assert isinstance(await secrets.read("shop", "cassandra"), Denied)
        port.denial = Denial.NOT_FOUND
        read = await secrets.read("shop", "cassandra")
        assert not isinstance(read, Denied)
        assert read.document is None

    run(work())


def test_a_copy_has_the_digest_of_its_source_whatever_else_stands_there() -> None:
    assert digest_of(VALUES) == digest_of({**VALUES, "note": "of the administrator"})
    assert digest_of(VALUES) != digest_of({**VALUES, "PASSWORD": "x"})


def test_values_of_a_secret_are_decoded_and_what_is_no_text_is_left_out() -> None:
    data = {"A": base64.b64encode(b"one").decode(), "B": base64.b64encode(b"\xff\xfe").decode()}
    assert {"A": "one"} == plain_values({"data": data})


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unavailable(), Reason.CASSANDRA_UNAVAILABLE),
        (ClockNotTrusted(), Reason.CLOCK_OUT_OF_BOUNDS),
        (SchemaRightsMissing(("CREATE TABLE a",), "no"), Reason.RIGHTS_MISSING),
        (KeyspaceUnfit(), Reason.WRONG_DATA_CENTER),
        (WrongDataCenter(), Reason.WRONG_DATA_CENTER),
        (OwnedByAnother(), Reason.NAME_TAKEN),
        (TooManyTables(), Reason.TOO_MANY_TABLES),
        (InvalidConnectionSettings(("CONTACT_POINTS is not set",)), Reason.CONNECTION_MISSING),
    ],
)
def test_what_goes_wrong_with_cassandra_has_a_reason(error: HeadgateError, reason: Reason) -> None:
    assert reason is failure_of(error).reason
