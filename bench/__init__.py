"""Measurements: `make bench-NAME`, or `python -m bench.run NAME`; how to read them stands in
docs/internals/benchmarks.md.

What is measured for one capability is a module of its own (`bench/store.py` is the first) that names its cases and
its contenders; all else here serves every benchmark alike. Nothing here is shipped, and nothing shipped names it.
"""
