"""The worker as a process: start, drain, stop."""
