"""The objects of the cluster as the watches bring them, and the queue of keys that they change."""
