"""`towers download`: gets a data set from its official address."""

from __future__ import annotations

import argparse

from towers.data.fetching.download import download
from towers.scripts.training.recipe import DATA_SETS


def run(options: argparse.Namespace) -> int:
    """Downloads into a folder that the recipe of the same name reads by default."""
    folder = options.data or DATA_SETS / options.name
    path = download(options.name, folder, base_url=options.url)
    print(f"{options.name} is in {path}")
    return 0
