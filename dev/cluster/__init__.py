"""A real Kubernetes for development and tests, from package registries alone: `python3 -m dev.cluster up`.

Standard library only: it runs before any virtual environment exists. How the parts fit together: dev/README.md.
"""
