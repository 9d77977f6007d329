"""What a training begins with that the data tells: the shares of its words."""

import json

import numpy as np
import pytest

from tests.data.prepared.text_helpers import write_stories
from towers.ground.special_ids import UNKNOWN
from towers.scripts.training.catalogue import find_recipe, with_fields
from towers.scripts.training.options import DeviceOptions
from towers.scripts.training.session import open_session

TINY = {"hidden_size": 8, "embedding_size": 8}


def begin(recipe, path, **fields):
    """Returns the model before its first step, and its data."""
    recipe = with_fields(find_recipe(recipe), {**TINY, **fields})
    devices = DeviceOptions(parameters="cpu")
    session = open_session(recipe, data=[str(path)], devices=devices, seed=0, precision="float32")
    return session.model, session.data


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    """A file of pairs with answers of two words and one that is copied; caches are beside it."""
    monkeypatch.chdir(tmp_path)
    names = [f"{letter}ella" for letter in "bdfghjklmn"]
    turns = [[f"my name is {name}", f"hello hello {name}"] for name in names * 3]
    lines = [json.dumps({"question": one, "answer": other}) for one, other in turns]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "pairs.jsonl"


@pytest.mark.parametrize("network", ["lstm", "awd_lstm", "transformer"])
def test_a_language_model_begins_with_the_shares_of_the_text(network, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_stories(tmp_path / "a.txt", 900)
    model, data = begin("language_model", "a.txt", network=network, heads=2, key_value_heads=1)
    counts = np.bincount(data.corpus.part("train"), minlength=len(data.text.vocabulary)) + 1
    shares = np.exp(model.output_bias.numpy())
    np.testing.assert_allclose(shares, counts / counts.sum(), rtol=1e-5)


@pytest.mark.parametrize("network", ["recurrent", "transformer"])
def test_a_chatbot_begins_with_the_shares_of_what_answers_may_say(network, pairs):
    fields = {"network": network, "heads": 2, "min_dialogues": 20, "held_out": 0.1}
    model, data = begin("chatbot", pairs, **fields)
    shares = np.exp(model.projection.bias.numpy())
    vocabulary, unknown = data.text.vocabulary, data.corpus.unigram_counts[UNKNOWN]
    assert unknown > 20
    assert shares.argmax() == vocabulary.id_of("hello")
    assert shares[UNKNOWN] == pytest.approx(shares.min())
    copies = shares[list(vocabulary.copies)].sum()
    assert copies == pytest.approx((unknown + len(vocabulary.copies)) / (4 * unknown + len(shares)))
    assert shares.sum() == pytest.approx(1)


def test_without_the_field_it_begins_without_them(pairs):
    model, _ = begin("chatbot", pairs, unigram_bias=False, held_out=0.1)
    assert not model.projection.bias.numpy().any()
