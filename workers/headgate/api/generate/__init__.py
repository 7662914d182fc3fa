"""What is made from the models: CRDs, JSON schemas and docs/reference.md."""
