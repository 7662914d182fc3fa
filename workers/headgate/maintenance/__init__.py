"""Repair and collection passes: used by the command line, by CronJobs and by Spark."""
