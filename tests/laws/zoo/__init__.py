"""Models that nobody wrote for towers, small, each with its loss and a batch of data."""
