"""Values that cross the border of the SDK."""
