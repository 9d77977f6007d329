"""The models: Keras networks, their losses as tower functions, and decoding."""
