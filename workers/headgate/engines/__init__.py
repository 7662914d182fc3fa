"""The engines: how a queue is laid out in tables, and what happens to a message on its way."""
