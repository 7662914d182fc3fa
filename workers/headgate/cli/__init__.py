"""The command line: `headgate`."""
