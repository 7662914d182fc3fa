"""The models of Queue and Counter, their parts and their status."""
