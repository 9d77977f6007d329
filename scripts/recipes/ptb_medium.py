"""The Penn Treebank with a language model of two LSTM layers of 650 units and dropout of 50 %.

Paper:    Zaremba et al. 2014, "Recurrent Neural Network Regularization", section 4.1
Data:     towers download ptb
Command:  towers train ptb_medium --gpus 0,1
Expected: test perplexity of 82.7 by the paper's table 1; not yet run by this project
"""

from __future__ import annotations

import dataclasses

from towers.scripts.recipes import ptb_small

RECIPE = dataclasses.replace(
    ptb_small.RECIPE,
    name="ptb_medium",
    fields=dataclasses.replace(
        ptb_small.RECIPE.fields,
        epochs=39,
        learning_rate=35.0,  # 1 of a sum over 35 steps, see ptb_small.
        clip_norm=5 / 35,
        boundaries=tuple(range(6, 39)),
        decay_rate=0.8,  # As in TensorFlow's tutorial; the paper divides by 1.2.
        num_steps=35,
        hidden_size=650,
        dropout_rate=0.5,
        initial_scale=0.05,
    ),
)
