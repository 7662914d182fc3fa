"""Applies resources to Cassandra: keyspace, tables, catalogue. Used by `headgate apply`, dev and the operator."""
