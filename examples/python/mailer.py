"""The handler of examples/dev/emails.yaml: prints what it would send. A message without an address fails until it
becomes a dead letter."""

from __future__ import annotations

from pydantic import BaseModel


class Mail(BaseModel):
    """The form of a message."""

    to: str
    subject: str = "hello"


async def send(mail: Mail) -> None:
    """Handle one message: it is settled when this returns, and tried again, later and later, when it raises."""
    print(f"sent {mail.subject!r} to {mail.to}", flush=True)
