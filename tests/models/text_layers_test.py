"""Small layers of text models, made again from their configs."""

import numpy as np

from towers.models.text_layers import Embedding


def test_an_embedding_is_made_again_from_its_config():
    layer = Embedding(5, 3, scale=0.01)
    again = Embedding.from_config(layer.get_config())
    again.build()
    assert again.table.shape == (5, 3)
    assert 0 < np.abs(again.table.numpy()).max() < 0.1
