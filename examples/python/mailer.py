"""The handler of examples/dev/emails.yaml: says what it would send. What has no address fails, until it is dead."""

from __future__ import annotations

from pydantic import BaseModel


class Mail(BaseModel):
    """What a message has to be."""

    to: str
    subject: str = "hello"


async def send(mail: Mail) -> None:
    """Handle one message: it is settled when this returns, and tried again, later and later, when it raises."""
    print(f"sent {mail.subject!r} to {mail.to}", flush=True)
