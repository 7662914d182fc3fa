"""The commands that settle a message by its receipt, as applications write them, and as engines take them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from headgate.client.model.times import Span, span_us
from headgate.engines import contract
from headgate.engines.contract import Ack
from headgate.errors import InvalidRequest


class SettleCommand(Protocol):
    """Any command of `headgate.settle`."""

    @property
    def receipt(self) -> str:
        """The receipt of the delivery that it settles."""


@dataclass(frozen=True, slots=True)
class Nack:
    """Returns the message, which is delivered again after the delay. It goes to the dead-letter queue after
    `maxReceives` deliveries."""

    receipt: str
    delay: Span = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Moves the message to the dead-letter queue. Where the queue has none, the message is delivered again after the
    delay."""

    receipt: str
    reason: str = ""
    delay: Span = 0


@dataclass(frozen=True, slots=True)
class Extend:
    """Hides the message for this long from now."""

    receipt: str
    visibility: Span


def build_settles(commands: Sequence[SettleCommand]) -> list[contract.Settle]:
    """As engines take them. The commands of an engine stay as they are."""
    return [_build_settle(command) for command in commands]


def _build_settle(command: SettleCommand) -> contract.Settle:
    kind = type(command)
    if kind is Ack:
        return cast(Ack, command)
    if kind is Nack:
        nack = cast(Nack, command)
        return contract.NackDelivery(nack.receipt, span_us(nack.delay, "delay"), nack.reason)
    if kind is DeadLetter:
        pending = cast(DeadLetter, command)
        return contract.DeadLetterDelivery(pending.receipt, pending.reason, span_us(pending.delay, "delay"))
    if kind is Extend:
        extend = cast(Extend, command)
        return contract.ExtendDelivery(extend.receipt, span_us(extend.visibility, "visibility"))
    if isinstance(command, contract.Settle):
        return command
    raise InvalidRequest(
        "A settle command is expected.", remedy="pass a command of headgate.settle", given=kind.__name__
    )


__all__ = ["Ack", "DeadLetter", "Extend", "Nack", "SettleCommand", "build_settles"]
