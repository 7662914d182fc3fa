"""How rows are read in the order of their due times."""
