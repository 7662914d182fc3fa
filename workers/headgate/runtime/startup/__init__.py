"""Where a worker process starts, drains and stops."""
