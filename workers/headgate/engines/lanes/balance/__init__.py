"""How members share the lanes of a queue."""
