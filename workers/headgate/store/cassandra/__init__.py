"""The Cassandra driver, and only here."""
