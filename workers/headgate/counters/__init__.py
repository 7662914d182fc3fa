"""Counters: order-free, sharded, mergeable. The protocol is in docs/internals/protocols/counters.md."""
