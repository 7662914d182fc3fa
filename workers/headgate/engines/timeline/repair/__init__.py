"""The repair passes of a timeline."""
