"""The training loop: input, updates, actions."""
