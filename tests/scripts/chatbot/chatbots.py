"""A tiny chatbot that never learned anything, opened as `towers chat` opens a trained one."""

from __future__ import annotations

import numpy as np

from towers.data.text import TextCodec, TextSettings, build_vocabulary
from towers.scripts.recipes.chatbot import RECIPE, make_model
from towers.scripts.training.catalogue import with_fields
from towers.scripts.training.recipe import Data
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.saved_run import OpenModel

WORDS = ["is", "it", "good", "bad", "rain", "sun", "now", "yes", "no", "?", ".", "下雨", "吗"]
ABOUT = {"pairs": 1234, "files": ["rain.tsv"]}


def open_chatbot(folder, *, copies: bool = False, **fields) -> OpenModel:
    """Returns a chatbot with random variables that answers something, a few words at most."""
    sizes = {"embedding_size": 6, "hidden_size": 8, "max_answer_length": 5, "context": 2}
    recipe = with_fields(RECIPE, {**sizes, "language": "en", **fields})
    counts = dict.fromkeys(WORDS, 9)
    text = TextCodec(
        TextSettings("en", tokenizer="spaces"), build_vocabulary(counts, 100, copies=copies)
    )
    model = make_model(recipe.fields, Data(None, None, text))
    random = np.random.default_rng(5)
    for variable in model.trainable_variables:
        variable.assign(random.normal(scale=0.7, size=variable.shape))
    bias = model.projection.bias.numpy()
    bias[text.vocabulary.end] = -4  # It says something.
    model.projection.bias.assign(bias)
    description = "chatbot, step 0 of nowhere"
    return OpenModel(RunDirectory(folder), recipe, model, text, description, ABOUT)
