"""Settings, tables, rows and partitions of a timeline."""
