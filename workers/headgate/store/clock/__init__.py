"""The process clock, compared with the clocks of the nodes."""
