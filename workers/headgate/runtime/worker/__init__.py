"""The worker: it receives, runs handlers and settles."""
