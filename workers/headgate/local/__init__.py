"""A whole stack on one machine, without Kubernetes: `headgate dev`."""
