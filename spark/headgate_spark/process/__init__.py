"""What every process of Spark has: its session, and in each Python process one connection."""
