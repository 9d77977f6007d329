"""Other ways to train a recipe, measured beside towers: `python -m benchmarks`, from a clone."""
