"""Tables and statements as values, and what runs them: Cassandra, or a simulation of it."""
