"""A run is opened, and says what is unusual about it before it trains."""

import dataclasses

from towers.scripts.training.catalogue import find_recipe
from towers.scripts.training.open import hint_of_length


def test_a_training_of_few_updates_is_told_how_to_get_more():
    recipe = find_recipe("chatbot")
    assert hint_of_length(recipe, 42).startswith("hint: 14 epochs of this data are 42 updates")
    assert hint_of_length(recipe, 5000) == ""
    chosen = dataclasses.replace(recipe, fields=dataclasses.replace(recipe.fields, epochs=3))
    assert hint_of_length(chosen, 9) == ""
