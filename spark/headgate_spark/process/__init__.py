"""The needs of every process of Spark: its session, and in each Python process one connection."""
