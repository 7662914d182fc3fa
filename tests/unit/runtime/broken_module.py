"""A handler's module that fails when it is imported."""

LIMIT = 1 // 0


def send(payload: bytes) -> None:
    """Never reached."""
