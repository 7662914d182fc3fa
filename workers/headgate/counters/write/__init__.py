"""Mutators: how updates are written."""
