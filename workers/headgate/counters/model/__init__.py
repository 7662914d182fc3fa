"""Settings and tables of counters, and their decisions."""
