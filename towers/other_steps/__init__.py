"""Other steps: asynchronous, joint and parallel ones, and recomputation."""
