"""The types of counters: what a value is, how an update changes it, and how shards of it are merged."""
