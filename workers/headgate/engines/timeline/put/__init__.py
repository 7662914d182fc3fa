"""How messages are put: group commit, acknowledgement, idempotency keys, cancellation."""
