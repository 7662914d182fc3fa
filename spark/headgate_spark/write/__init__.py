"""Writing rows into queues and counters, each once."""
