"""Other steps: asynchronous and joint ones, and recomputation."""
