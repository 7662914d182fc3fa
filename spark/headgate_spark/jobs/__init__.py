"""The bulk jobs: drain, move, redrive, replay, export, rollup, gc and repair. docs/protocols/spark.md, "Jobs"."""
