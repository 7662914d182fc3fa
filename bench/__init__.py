"""Measurements: `make bench-NAME`, or `python -m bench.run NAME`; docs/internals/benchmarks.md explains how to read
them.

The measurement of one capability is a module of its own (`bench/store.py` is the first) that names its cases and its
contenders; all else in this package serves every benchmark alike. Nothing of it is shipped, and no shipped module
names it.
"""
