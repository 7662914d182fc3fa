"""How a counter is read."""
