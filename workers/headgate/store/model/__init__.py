"""Tables, statements, types and positions as values."""
