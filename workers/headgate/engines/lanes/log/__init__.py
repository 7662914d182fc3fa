"""The settle log: what is settled, hidden or moved above the position, and its stored form."""
