"""The SDK: `headgate.connect()`, or `headgate.connect_sync()` where there is no event loop."""

from headgate.client.connection import Headgate, connect
from headgate.client.counter import Counter
from headgate.client.message import Message
from headgate.client.model.outgoing import Put
from headgate.client.queue import Queue
from headgate.client.sync.blocking import SyncCounter, SyncHeadgate, SyncMessage, SyncQueue, connect_sync

__all__ = [
    "Counter",
    "Headgate",
    "Message",
    "Put",
    "Queue",
    "SyncCounter",
    "SyncHeadgate",
    "SyncMessage",
    "SyncQueue",
    "connect",
    "connect_sync",
]
