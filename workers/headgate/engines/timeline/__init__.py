"""A queue ordered by time: docs/internals/protocols/timeline.md."""
