"""A Cassandra on this machine, for `headgate dev`."""
