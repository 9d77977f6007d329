"""Readers of files as the world has them: dialogues in several formats, and texts."""
