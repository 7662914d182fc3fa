"""The module `database` of docs/recipes.md: an application's own session, in the keyspace of the environment."""

from __future__ import annotations

import atexit
import os
from contextlib import ExitStack

from dev.servers.cassandra.connection import read_connection
from tests.system.sdk.test_add_to_batch import session_at

_open = ExitStack()
atexit.register(_open.close)
session = _open.enter_context(session_at(os.environ, read_connection(os.environ).contact_points[0]))
