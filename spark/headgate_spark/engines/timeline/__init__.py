"""Engine timeline for Spark."""
