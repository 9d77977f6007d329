"""Variables: how a tower sees the shared variables, and their copies."""
