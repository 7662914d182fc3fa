"""How bulk jobs work on lanes: one file for each engine, behind contract.py."""
