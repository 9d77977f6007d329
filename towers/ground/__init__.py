"""The ground: what models, data and the engine may all import; it imports no TensorFlow itself."""
