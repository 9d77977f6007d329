"""One training step: placement, towers, exchange, update; read `builder` first."""
