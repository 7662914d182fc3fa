"""The documents of the operator's children, built, merged and compared. Pure."""
