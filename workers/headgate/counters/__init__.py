"""Counters: order-free, sharded, mergeable. The protocol is in docs/protocols/counters.md."""
