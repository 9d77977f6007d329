"""Batches of any data: random numbers, the order of an epoch, buckets of similar lengths."""
