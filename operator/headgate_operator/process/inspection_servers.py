"""The two ports of /why and /plan: one on loopback without a login, and one over TLS with it, if it is configured."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import InvalidRequest
from headgate.process.background_tasks import end_task, start_task
from headgate.process.http_server import HttpServer, read_address
from headgate_operator.cluster.requests import ClusterPort
from headgate_operator.process.inspection import InspectionAccess, inspection_server
from headgate_operator.process.inspection_login import Login
from headgate_operator.process.leader_election import LeaderElection
from headgate_operator.process.serving_certificate import ServingCertificate
from headgate_operator.process.wiring import Operator

log = logging.getLogger("headgate.operator")


@dataclass(frozen=True)
class InspectionOptions:
    loopback: tuple[str, int] | None
    with_login: tuple[str, int] | None
    tls: Path
    """The folder of the certificate of the port with a login."""


class InspectionServers:
    def __init__(self, operator: Operator, port: ClusterPort, leading: LeaderElection) -> None:
        self._operator = operator
        self._port = port
        self._leading = leading
        self._servers: list[HttpServer] = []
        self._renewing: list[asyncio.Task[None]] = []

    async def open(self, options: InspectionOptions) -> None:
        if options.loopback is not None:
            port = await self._serve(options.loopback, None)
            log.info("serving inspection", extra={"inspection_port": port})
        if options.with_login is not None:
            certificate = ServingCertificate(options.tls)
            access = InspectionAccess(Login(self._port), certificate.context, self._leading.may_act)
            port = await self._serve(options.with_login, access)
            self._renewing.append(start_task("certificate", certificate.keep_fresh()))
            log.info("serving inspection with login", extra={"inspection_login_port": port})

    async def close(self) -> None:
        await end_task(*self._renewing)
        for server in self._servers:
            await server.close()

    async def _serve(self, address: tuple[str, int], access: InspectionAccess | None) -> int:
        server = inspection_server(self._operator.ring.of, self._operator.plan, self._leading.holder, access=access)
        await server.open(*address)
        self._servers.append(server)
        return server.port


def read_loopback_address(text: str) -> tuple[str, int] | None:
    """The address of the port without a login, which nobody else may reach."""
    address = read_address(text, option="--inspection", host="127.0.0.1")
    if address is not None and address[0] != "localhost" and not _is_loopback(address[0]):
        raise InvalidRequest(
            "--inspection asks for no login, so it takes a loopback address only",
            given=text,
            remedy="set --inspection-login for others",
        )
    return address


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
