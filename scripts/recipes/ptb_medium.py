"""The Penn Treebank with a language model of two LSTM layers of 650 units and dropout of 50 %.

Paper:    Zaremba et al. 2014, "Recurrent Neural Network Regularization", section 4.1
Data:     towers download ptb
Command:  towers train ptb_medium --gpus 0,1
Expected: test perplexity of 82.7 by the paper's table 1; not yet run by this project
"""

from __future__ import annotations

import dataclasses

from towers.scripts.recipes import ptb_small
from towers.scripts.recipes.ptb_small import (
    BEST_METRIC,
    COMMAND,
    DATA_SET,
    MAXIMIZE,
    UNIT,
    derive_metrics,
    load_text,
    make_carried,
    make_data,
    make_model,
    make_tower_fn,
    to_keras,
)

__all__ = [
    "BEST_METRIC",
    "COMMAND",
    "DATA_SET",
    "MAXIMIZE",
    "UNIT",
    "Fields",
    "derive_metrics",
    "load_text",
    "make_carried",
    "make_data",
    "make_model",
    "make_tower_fn",
    "to_keras",
]


@dataclasses.dataclass(frozen=True)
class Fields(ptb_small.Fields):
    """The fields of ptb_small with other values."""

    epochs: int = 39
    learning_rate: float = 35.0  # 1 of a sum over 35 steps, see ptb_small.
    clip_norm: float = 5 / 35
    boundaries: tuple[float, ...] = tuple(range(6, 39))
    decay_rate: float = 0.8  # As in TensorFlow's tutorial; the paper divides by 1.2.
    num_steps: int = 35
    hidden_size: int = 650
    dropout_rate: float = 0.5
    initial_scale: float = 0.05
