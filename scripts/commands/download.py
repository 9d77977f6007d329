"""`towers download`: downloads a data set from its official address.

towers download mnist
towers download ptb --data corpora/ptb
"""

from __future__ import annotations

import dataclasses
from typing import Annotated

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
        url: another address with the same files (default: the official one).
    """

    name: Annotated[str, "NAME"]
    data: Folder | None = None
    url: Annotated[str | None, "URL"] = None


def run(options: DownloadOptions) -> int:
    """Downloads into a folder that the recipe of the same name reads by default."""
    from towers.data.fetching.download import download

    with wrong_input():
        folder = options.data or DATA_SETS / options.name
        path = download(options.name, folder, base_url=options.url)
    show(f"{options.name} is in {path}")
    return 0
