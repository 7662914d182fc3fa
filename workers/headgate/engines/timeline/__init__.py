"""A queue ordered by time: docs/protocols/timeline.md."""
