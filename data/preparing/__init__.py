"""Preparing a corpus: tokenised by all cores into a cache, from where a killed process left it."""
