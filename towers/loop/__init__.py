"""The training loop: updates, their reports, actions."""
