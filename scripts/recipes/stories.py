"""Embedded small stories with a small language model: needs no download and no GPU.

Data:     stories that this project generates, 136,000 tokens for training; or yours with --data
Command:  towers train stories --towers 2
          towers generate runs/stories --prompt "one morning anna"
Expected: perplexity 1.52 after 45 seconds on two CPU cores; with the rules that generate the
          stories, the best possible perplexity is 1.42
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from towers.scripts.recipes import ptb_small
from towers.scripts.shown import show
from towers.scripts.training.recipe import Data


def make_data(
    fields: ptb_small.Fields,
    folder: Path | None,
    seed: int,
    write: Callable[[str], None] = show,
) -> Data:
    """Returns the batches of a folder's files, or without a folder those of the stories."""
    from towers.data.samples import stories

    if folder is not None:
        return ptb_small.make_data(fields, folder, seed, write)
    texts = {part: stories.text(part) for part in stories.PARTS}
    return ptb_small.make_batches(fields, texts, seed, write)


RECIPE = dataclasses.replace(
    ptb_small.RECIPE,
    name="stories",
    fields=dataclasses.replace(
        ptb_small.RECIPE.fields,
        epochs=8,
        optimizer="adam",
        learning_rate=1e-2,
        warmup_steps=0,
        clip_norm=1.0,
        schedule="cosine",
        hidden_size=128,
        num_layers=1,
        initial_scale=0.3,
        num_steps=40,
    ),
    data_set=None,
    make_data=make_data,
)
