"""The collector of expired shards."""
