"""The resource models: one pydantic model each of Queue and Counter, the source of crds/ and of the reference."""
