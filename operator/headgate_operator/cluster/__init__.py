"""The API server behind one port: requests as values, and the client that sends them."""
