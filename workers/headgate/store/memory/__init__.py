"""A store without a server: one replica in memory, and the rules by which Cassandra merges writes."""
