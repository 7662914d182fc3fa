"""A Kubernetes cluster in memory, behind the operator's port: API server, controllers, kubelet; in virtual time."""
