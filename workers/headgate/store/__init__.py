"""Tables and statements as values, and the stores that run them: Cassandra, or a simulation of it."""
