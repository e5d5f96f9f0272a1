"""How methods are fitted: their three shapes, the steps that iterative ones yield, and the loop that drives the steps."""
