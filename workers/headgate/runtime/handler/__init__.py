"""Handlers: how they are found, called, and how their failures are judged."""
