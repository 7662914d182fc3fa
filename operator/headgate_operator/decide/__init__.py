"""The decisions about a resource and its namespace: the world in, effects out. Pure."""
