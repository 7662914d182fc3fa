"""What holds between fields, and how large a resource may be."""
