"""Other ways to train the same recipe, for comparison."""
