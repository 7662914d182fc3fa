"""Resources from JSON and YAML: valid, or every fault with its place."""
