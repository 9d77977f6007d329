"""Batches: from a data set to shards on their devices."""
