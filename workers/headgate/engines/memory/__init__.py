"""An engine without a server: queues in the memory of one process, for tests and for development."""
