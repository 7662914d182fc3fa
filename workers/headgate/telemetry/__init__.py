"""What a process tells of itself: metrics as plain numbers, their two ways out, log lines, and trace context."""
