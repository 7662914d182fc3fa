"""The telemetry of a process: metrics as plain numbers, their two exporters, log lines, and trace context."""
