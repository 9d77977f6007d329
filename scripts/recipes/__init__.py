"""The recipes: data, model, optimizer and schedule of one training run each.

The settings of a recipe are read without TensorFlow and NumPy: what makes a model or reads data
imports them itself.
"""
