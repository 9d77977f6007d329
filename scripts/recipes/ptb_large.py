"""The Penn Treebank with a language model of two LSTM layers of 1500 units and dropout of 65 %.

Paper:    Zaremba et al. 2014, "Recurrent Neural Network Regularization", section 4.1
Data:     towers download ptb
Command:  towers train ptb_large --gpus 0,1
Expected: test perplexity of 78.4 by the paper's table 1; not yet run by this project
"""

from __future__ import annotations

import dataclasses

from towers.scripts.recipes import ptb_small

RECIPE = dataclasses.replace(
    ptb_small.RECIPE,
    name="ptb_large",
    fields=dataclasses.replace(
        ptb_small.RECIPE.fields,
        epochs=55,
        learning_rate=35.0,  # 1 of a sum over 35 steps, see ptb_small.
        clip_norm=10 / 35,
        boundaries=tuple(range(14, 55)),
        decay_rate=1 / 1.15,
        num_steps=35,
        hidden_size=1500,
        dropout_rate=0.65,
        initial_scale=0.04,
    ),
)
