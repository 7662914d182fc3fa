"""The data plane and the SDK: queues and counters on Cassandra."""
