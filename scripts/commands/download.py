"""`towers download`: gets a data set from its official address."""

from __future__ import annotations

import argparse
import dataclasses

from towers.scripts.commands.option_types import path_name
from towers.scripts.commands.options import read_options
from towers.scripts.shown import show
from towers.scripts.training.catalogue import DATA_SETS
from towers.scripts.wrong_input import wrong_input


@dataclasses.dataclass(frozen=True)
class DownloadOptions:
    """The download of a data set.

    Attributes:
        name: the data set.
        data: the folder, None for datasets/NAME.
        url: another address that serves the same files.
    """

    name: str
    data: str | None = None
    url: str | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("name", metavar="NAME", help="mnist, fashion_mnist, cifar10 or ptb")
    parser.add_argument("--data", type=path_name, metavar="DIR", help="default: datasets/NAME")
    parser.add_argument(
        "--url",
        metavar="URL",
        help="another address that serves the same files (default: the official one)",
    )


def run(given: argparse.Namespace) -> int:
    """Downloads into a folder that the recipe of the same name reads by default."""
    from towers.data.fetching.download import download

    options = read_options(DownloadOptions, given)
    with wrong_input():
        folder = options.data or DATA_SETS / options.name
        path = download(options.name, folder, base_url=options.url)
    show(f"{options.name} is in {path}")
    return 0
