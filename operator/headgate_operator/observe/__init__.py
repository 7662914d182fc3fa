"""The world of one key, and the readers that gather it."""
