"""The commands that settle a message by its receipt, for `Queue.settle`.

    from headgate import settle

    await queue.settle([settle.Ack(done.receipt), settle.DeadLetter(bad.receipt, "no address")])

A message settles itself (`message.ack()`, `nack`, `reject`, `extend`). The commands are for code that holds receipts
alone, or that settles many messages by one call. A handler of a worker raises `headgate.Reject` instead.
"""

from headgate.client.model.settle_commands import Ack, DeadLetter, Extend, Nack, SettleCommand

__all__ = ["Ack", "DeadLetter", "Extend", "Nack", "SettleCommand"]
