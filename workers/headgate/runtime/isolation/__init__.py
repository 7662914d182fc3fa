"""Crash suspects run in a child process."""
