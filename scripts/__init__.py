"""The commands: where the engine, the models and the data meet."""
