"""What `towers benchmark` measures: the time of a recipe's step, and its input."""
