"""The source of a session's Cassandra: the user's choice; else a running one; else the jars."""

from __future__ import annotations

import http.server
import threading
from pathlib import Path

import pytest

from dev.servers.cassandra.choose import Source, decide_source
from dev.servers.docker_engine import docker_answers
from headgate.errors import InvalidRequest

POINTS = {"CONTACT_POINTS": "db1:9042"}


@pytest.mark.parametrize(
    ("environment", "docker_runs", "expected"),
    [
        ({}, False, Source.JARS),
        ({}, True, Source.DOCKER),
        (POINTS, True, Source.EXISTING),
        ({"CONTACT_POINTS": " "}, False, Source.JARS),
        ({"HEADGATE_TEST_CASSANDRA": "jars"} | POINTS, True, Source.JARS),
        ({"HEADGATE_TEST_CASSANDRA": " Docker "}, False, Source.DOCKER),
        ({"HEADGATE_TEST_CASSANDRA": "existing"} | POINTS, False, Source.EXISTING),
    ],
)
def test_the_users_word_then_a_named_cluster_then_docker_then_the_jars(
    environment: dict[str, str], docker_runs: bool, expected: Source
) -> None:
    assert expected == decide_source(environment, docker_runs=docker_runs)


def test_an_unknown_source_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidRequest, match="jars, docker or existing"):
        decide_source({"HEADGATE_TEST_CASSANDRA": "podman"}, docker_runs=True)


def test_an_existing_cluster_has_to_be_named() -> None:
    with pytest.raises(InvalidRequest, match="CONTACT_POINTS"):
        decide_source({"HEADGATE_TEST_CASSANDRA": "existing"}, docker_runs=False)


def test_no_socket_is_no_docker(tmp_path: Path) -> None:
    assert not docker_answers(f"unix://{tmp_path}/docker.sock")
    assert not docker_answers("ssh://somewhere")


@pytest.mark.parametrize(("status", "expected"), [(200, True), (500, False)])
def test_docker_runs_where_its_ping_is_answered(status: int, expected: bool) -> None:
    class Ping(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/_ping" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Ping) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert expected == docker_answers(f"tcp://127.0.0.1:{server.server_port}")
        thread.join()
