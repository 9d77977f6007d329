"""Subword models are learned the same from the same texts, and give the text back."""
# ruff: noqa: RUF001 - full-width punctuation is part of Chinese.

import re
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from towers.data.text.settings import TextSettings
from towers.data.text.subwords import train_subwords
from towers.data.text.tokenizers import make_tokenizer

TEXTS = [
    "the lower the better",
    "newer and newest",
    "wider, widest, lowest",
    "今天天气真好，是吧？",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "subwords.model"
    train_subwords(iter(TEXTS * 20), 60, path)
    return path


def test_same_texts_give_the_same_model(model, tmp_path):
    train_subwords(TEXTS * 20, 60, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == model.read_bytes()


def test_training_is_quiet(tmp_path, capfd):
    train_subwords(TEXTS * 20, 60, tmp_path / "model")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("language", ["zh", "en"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text() | st.text("lowernt ,▁<unk>s/中天") | st.sampled_from(TEXTS))
def test_pieces_joined_are_the_text(model, language, text):
    subwords = TextSettings(language, "subwords", subword_model=str(model))
    tokenizer = make_tokenizer(subwords)
    normal = subwords.normalise(text)
    assert tokenizer.detokenise(tokenizer.tokenize(normal)) == normal.replace("▁", "_")


def test_frequent_words_are_few_pieces(model):
    subwords = TextSettings("en", "subwords", subword_model=str(model))
    pieces = make_tokenizer(subwords).tokenize("the newest")
    assert len(pieces) < len("the newest")


def test_missing_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="needs a subword_model"):
        make_tokenizer(TextSettings("en", "subwords"))
    for path in [tmp_path / "missing.model", tmp_path]:
        with pytest.raises(ValueError, match=rf"{path}: expected a SentencePiece model"):
            make_tokenizer(TextSettings("en", "subwords", subword_model=str(path)))


def test_damaged_model_is_refused(model, tmp_path):
    damaged = tmp_path / "damaged.model"
    damaged.write_bytes(model.read_bytes()[:-100] + b"nonsense" * 20)
    with pytest.raises(ValueError, match=r"damaged.model: expected a SentencePiece model"):
        make_tokenizer(TextSettings("en", "subwords", subword_model=str(damaged)))


def test_nothing_is_learned_from_no_text(tmp_path):
    with pytest.raises(ValueError, match="no text to learn subwords from"):
        train_subwords([], 60, tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [-1, 0, 5])
def test_too_small_a_vocabulary_is_told_the_size_it_needs(tmp_path, size):
    with pytest.raises(ValueError, match=rf"vocabulary_size .* Received {size + 5}") as refused:
        train_subwords(TEXTS, size, tmp_path / "model")
    assert not list(tmp_path.iterdir())
    needed = int(re.search(r"at least (\d+)", str(refused.value))[1])
    train_subwords(TEXTS, needed - 5, tmp_path / "model")
    with pytest.raises(ValueError, match=f"at least {needed}"):
        train_subwords(TEXTS, needed - 6, tmp_path / "model")


def test_missing_library_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ValueError, match=r"pip install -e '\.\[subwords\]'"):
        train_subwords(TEXTS, 60, tmp_path / "model")
