"""The version of what is installed, which `setup.cfg` names."""

import importlib.metadata

__version__ = importlib.metadata.version("towers")
