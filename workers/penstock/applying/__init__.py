"""Resources brought to Cassandra: keyspace, tables, catalogue. Used by `penstock apply`, dev and the operator."""
