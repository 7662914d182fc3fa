"""What makes and tests the project: not shipped, run from a checkout with the standard library alone."""
