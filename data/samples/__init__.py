"""Small data sets that the project generates or includes."""
