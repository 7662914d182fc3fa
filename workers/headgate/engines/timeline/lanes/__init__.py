"""How lanes of a timeline are taken, held, handed over and retired."""
