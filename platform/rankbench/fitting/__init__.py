"""How a fit that goes by iterations is run: steps that a method yields, and the one loop that drives them."""
