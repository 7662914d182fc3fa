"""The rounds of a key: observe, decide, apply; and the record of its decisions and conditions."""
