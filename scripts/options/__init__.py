"""Options: one way from a dataclass to flags, `--set`, config files, help and checks."""
