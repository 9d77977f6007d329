"""One training step: towers, exchange, update; read `builder` first."""
