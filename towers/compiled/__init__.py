"""A compiled Keras model as it is: fit, evaluate and predict on towers."""
