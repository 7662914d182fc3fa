"""`kubectl headgate` and `headgate plan`."""
