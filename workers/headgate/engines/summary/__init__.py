"""The backlog of all queues, in one small table: written by producers and owners of lanes, read by slices."""
