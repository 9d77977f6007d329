"""Batches of examples of similar lengths, whose shards have about as many tokens each."""
