"""The process: what wires the operator up, its leadership, its probes and its metrics."""
