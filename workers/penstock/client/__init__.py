"""The SDK: `penstock.connect()`, or `penstock.connect_sync()` where there is no event loop."""

from penstock.client.blocking import SyncMessage, SyncPenstock, SyncQueue, connect_sync
from penstock.client.blocking_counter import SyncCounter
from penstock.client.connection import Penstock, connect
from penstock.client.counter import Counter
from penstock.client.message import Message
from penstock.client.outgoing import Put
from penstock.client.queue import Queue

__all__ = [
    "Counter",
    "Message",
    "Penstock",
    "Put",
    "Queue",
    "SyncCounter",
    "SyncMessage",
    "SyncPenstock",
    "SyncQueue",
    "connect",
    "connect_sync",
]
