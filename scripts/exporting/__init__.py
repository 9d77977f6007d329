"""Trained models as folders that need TensorFlow alone."""
