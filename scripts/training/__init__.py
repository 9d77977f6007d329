"""A recipe put together and trained: recipe, session, engine, run directory."""
