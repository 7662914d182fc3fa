"""The bulk jobs: drain, move, redrive, replay, export, rollup, gc and repair. docs/internals/protocols/spark.md,
"Jobs".
"""
