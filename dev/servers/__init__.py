"""Real servers for tests and the demo: Cassandras, rings, networks. Not shipped."""
