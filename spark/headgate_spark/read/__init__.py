"""Reading queues and counters as DataFrames: batches and streams."""
