"""`towers download`: gets a data set from its official address."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Annotated

from towers.scripts.options.flags import add_flags, read_options
from towers.scripts.options.setting import Folder
from towers.scripts.shown import show
from towers.scripts.training.catalogue import DATA_SETS
from towers.scripts.wrong_input import wrong_input


@dataclasses.dataclass(frozen=True)
class DownloadOptions:
    """The download of a data set.

    Attributes:
        name: mnist, fashion_mnist, cifar10 or ptb.
        data: the folder (default: datasets/NAME).
        url: another address that serves the same files (default: the official one).
    """

    name: Annotated[str, "NAME"]
    data: Folder | None = None
    url: Annotated[str | None, "URL"] = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_flags(parser, DownloadOptions)


def run(given: argparse.Namespace) -> int:
    """Downloads into a folder that the recipe of the same name reads by default."""
    from towers.data.fetching.download import download

    options = read_options(DownloadOptions, given)
    with wrong_input():
        folder = options.data or DATA_SETS / options.name
        path = download(options.name, folder, base_url=options.url)
    show(f"{options.name} is in {path}")
    return 0
