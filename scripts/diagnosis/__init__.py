"""What `towers doctor` and `towers estimate` find out about a machine and a recipe."""
