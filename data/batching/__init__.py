"""What every kind of batch shares: order, position, random numbers, lengths."""
