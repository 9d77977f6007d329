"""Small data sets that the project generates and carries with it."""
