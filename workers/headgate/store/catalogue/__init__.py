"""The entries of queues and counters, and their generations."""
