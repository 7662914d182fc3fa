"""The source of a test session's Cassandra: decided from the user's settings and the machine's programs.

HEADGATE_TEST_CASSANDRA    jars | docker | existing: the user's choice, without a fallback
HEADGATE_CONTACT_POINTS    names a running cluster: that one (or CONTACT_POINTS)
a Docker engine answers    testcontainers starts the official image
else                       the jars, by Maven and Java
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec

from dev.servers.cassandra.connection import read_connection
from dev.servers.cassandra.docker import DockerCassandra
from dev.servers.cassandra.serving import Existing, Serving
from dev.servers.cassandra.settings import NodeSettings
from dev.servers.cassandra.single import Cassandra
from dev.servers.docker_engine import docker_answers
from headgate.errors import InvalidRequest
from headgate.store.connection_variables import connection_variables

VARIABLE = "HEADGATE_TEST_CASSANDRA"


class Source(StrEnum):
    """Where it comes from."""

    JARS = "jars"
    DOCKER = "docker"
    EXISTING = "existing"


def decide_source(environment: Mapping[str, str], *, docker_runs: bool) -> Source:
    """The source for this environment; pure."""
    named = environment.get(VARIABLE, "").strip().lower()
    has_points = "CONTACT_POINTS" in connection_variables(environment)
    if named:
        if named not in set(Source):
            raise InvalidRequest(
                "unknown source of Cassandra", remedy=f"set {VARIABLE} to jars, docker or existing", got=named
            )
        if named == Source.EXISTING and not has_points:
            raise InvalidRequest(
                "an existing cluster is requested, but none is named", remedy="set HEADGATE_CONTACT_POINTS"
            )
        return Source(named)
    if has_points:
        return Source.EXISTING
    return Source.DOCKER if docker_runs else Source.JARS


def serve(settings: NodeSettings | None = None) -> Serving:
    """A Cassandra from the source for this machine; the caller ends it by `stop`."""
    source = decide_source(os.environ, docker_runs=_docker_is_usable(os.environ))
    if source is Source.EXISTING:
        return Existing(read_connection(os.environ))
    if source is Source.DOCKER:
        return DockerCassandra.start(settings)
    return Cassandra.start(settings)


def _docker_is_usable(environment: Mapping[str, str]) -> bool:
    return find_spec("testcontainers") is not None and docker_answers(environment.get("DOCKER_HOST"))
