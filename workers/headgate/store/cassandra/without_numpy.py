"""Lets the driver be imported without numpy, which it imports wherever that is installed, for one way of reading
results that nothing of ours uses: 11 MB of memory, where an idle worker takes 75 without them.

For a process of ours alone: an application that connects through the SDK may read its own results that way.
"""

from __future__ import annotations

import sys
from importlib import import_module


def leave_numpy_out() -> None:
    """Before the driver is imported for the first time; modules that are imported already stay as they are."""
    if "numpy" in sys.modules or "cassandra.cython_deps" in sys.modules:
        return
    sys.modules["numpy"] = None  # type: ignore[assignment]  # so an import of it fails, as where it is not installed
    try:
        import_module("cassandra.cython_deps")
    except ImportError:  # there is no driver: the code that connects reports it
        return
    finally:
        del sys.modules["numpy"]
