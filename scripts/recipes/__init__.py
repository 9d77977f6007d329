"""The recipes: data, model, optimizer and schedule of one training run each."""
