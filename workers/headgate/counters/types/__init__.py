"""The types of counters: the form of a value, the effect of an update, and the merge of its shards."""
