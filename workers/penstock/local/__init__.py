"""A whole stack on one machine, without Kubernetes: `penstock dev`."""
