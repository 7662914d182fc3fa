"""The way to each Cassandra: Secrets, sessions, and the entries and tables there."""
