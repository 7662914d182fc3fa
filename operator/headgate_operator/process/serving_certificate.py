"""The certificate by which /why and /plan are served: files of a mounted Secret, which may be renewed meanwhile."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

from headgate.errors import EnvironmentProblem

log = logging.getLogger("headgate.operator")

FOLDER: Final = "/etc/headgate/inspection"
READ_EVERY_S: Final = 60.0


class CertificateInvalid(EnvironmentProblem):
    """The certificate of /why and /plan cannot be used."""


class ServingCertificate:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # TLS 1.2 and later
        self._load()

    async def keep_fresh(self) -> None:
        """Read the files again and again: later connections get the renewed certificate."""
        while True:
            await asyncio.sleep(READ_EVERY_S)
            try:
                self._load()
            except CertificateInvalid as error:  # half renewed; the one in use stays
                log.warning("reading the certificate failed", extra={"error": str(error)})

    def _load(self) -> None:
        try:
            self.context.load_cert_chain(self._folder / "tls.crt", self._folder / "tls.key", password=_no_password)
        except (OSError, ValueError) as error:
            raise CertificateInvalid(
                folder=str(self._folder),
                cause=str(error),
                remedy="mount a Secret with tls.crt and tls.key, and name its folder by --inspection-tls",
            ) from None


def _no_password() -> str:
    """For a key that is encrypted. Without it OpenSSL would ask at the terminal, and wait."""
    return ""
