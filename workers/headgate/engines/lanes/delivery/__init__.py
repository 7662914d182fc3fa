"""The messages of a lane that were read: their states, and what bounds how many are held. No I/O."""
