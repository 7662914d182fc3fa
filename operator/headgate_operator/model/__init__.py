"""Frozen values that the rooms share: keys, kinds of objects, the world, effects, and parts of a decision. Pure."""
