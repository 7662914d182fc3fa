"""The engines: the layout of a queue in tables, and the path of a message through it."""
