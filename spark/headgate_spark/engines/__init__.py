"""One file an engine: how its queues are cut into splits, and how a split becomes Arrow batches."""
