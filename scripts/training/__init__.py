"""A recipe put together and trained: recipe, session, engines, run directory."""
