"""The operator's next changes without the changes: by the leader, or offline."""
