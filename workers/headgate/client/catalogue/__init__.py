"""How the SDK finds a queue, and what it knows about it."""
