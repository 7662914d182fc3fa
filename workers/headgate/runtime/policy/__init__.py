"""The decisions of a worker: pace, rate, prefetch, visibility, drain, health."""
