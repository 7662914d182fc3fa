"""The commands that settle a message by its receipt, as applications write them, and as engines take them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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
    return [each if type(each) is Ack else _build_settle(each) for each in commands]


def _build_settle(command: SettleCommand) -> contract.Settle:
    match command:
        case contract.NackDelivery() | contract.DeadLetterDelivery() | contract.ExtendDelivery():
            return command
        case Nack(receipt, delay, reason):
            return contract.NackDelivery(receipt, span_us(delay, "delay"), reason)
        case DeadLetter(receipt, reason, delay):
            return contract.DeadLetterDelivery(receipt, reason, span_us(delay, "delay"))
        case Extend(receipt, visibility):
            return contract.ExtendDelivery(receipt, span_us(visibility, "visibility"))
    remedy = "pass a command of headgate.settle"
    raise InvalidRequest("A settle command is expected.", remedy=remedy, given=type(command).__name__)


__all__ = ["Ack", "DeadLetter", "Extend", "Nack", "SettleCommand", "build_settles"]
