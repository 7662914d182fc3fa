"""The programs that build and test the project: not shipped, run from a checkout with the standard library alone."""
