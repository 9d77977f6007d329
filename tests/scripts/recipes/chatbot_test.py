"""The recipe `chatbot` tells which of its two limits of a batch holds."""

import dataclasses

import numpy as np

from towers.scripts.recipes.chatbot import RECIPE, limited_fraction


def test_a_batch_is_limited_by_tokens_if_one_more_pair_would_exceed_them():
    fields = dataclasses.replace(RECIPE.fields, batch_size=10, batch_tokens=100)
    by_tokens, exactly, by_pairs, the_rest = [6, 8, 8], [5, 10, 10], [10, 5, 4], [2, 5, 5]
    assert limited_fraction(np.array([by_tokens, exactly, by_pairs, the_rest]), fields) == 0.5
    assert limited_fraction(np.array([by_pairs, the_rest]), fields) == 0
