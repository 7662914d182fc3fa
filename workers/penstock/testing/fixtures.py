"""Fixtures for tests against real servers; loaded by pytest where penstock[test] is installed."""
