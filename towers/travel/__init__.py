"""Travel: what goes between devices, and the sums that are made on the way."""
