"""Text models and their small layers, made again from their configs."""

import keras
import numpy as np
import pytest

from towers.models.answering import AnsweringModel
from towers.models.awd_lstm import AWDLanguageModel
from towers.models.recurrent import GRU, LSTM
from towers.models.rnn_lm import RNNLanguageModel
from towers.models.seq2seq import Seq2Seq
from towers.models.text_layers import Dense, Embedding
from towers.models.transformer import Transformer
from towers.models.transformer_lm import TransformerLanguageModel

# Keras converts its variables in a way that NumPy deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def test_an_embedding_is_made_again_from_its_config():
    layer = Embedding(5, 3, scale=0.01)
    again = Embedding.from_config(layer.get_config())
    again.build()
    assert again.table.shape == (5, 3)
    assert 0 < np.abs(again.table.numpy()).max() < 0.1


@pytest.mark.parametrize("kind", [Dense, LSTM, GRU])
def test_a_model_of_anyone_with_these_layers_is_saved_and_loaded(kind, tmp_path):
    model = keras.Sequential([keras.Input([None, 3]), kind(2)])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again.layers[0]) is kind
    x = np.ones([2, 4, 3], "float32")
    np.testing.assert_array_equal(again(x), model(x))


TEXT_MODELS = {
    "transformer": (Transformer, {"size": 8, "heads": 2, "tied_output": False}),
    "seq2seq": (Seq2Seq, {"hidden_size": 8, "attention": "bahdanau", "input_feeding": True}),
    "transformer_lm": (TransformerLanguageModel, {"size": 8, "heads": 2, "num_layers": 2}),
    "rnn_lm": (RNNLanguageModel, {"hidden_size": 8}),
    "awd_lstm": (AWDLanguageModel, {"hidden_size": 8}),
}


@pytest.mark.parametrize(("kind", "options"), TEXT_MODELS.values(), ids=TEXT_MODELS)
def test_a_text_model_is_saved_by_keras_whole_with_its_policy(kind, options, tmp_path):
    ids = np.array([[3, 4, 5], [6, 3, 0]], "int32")
    inputs = (ids, ids) if issubclass(kind, AnsweringModel) else ids
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = kind(9, **options, name="own")
    model.save(tmp_path / "model.keras")
    keras.config.set_dtype_policy("float32")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert (again.name, again.dtype_policy.name) == ("own", "mixed_bfloat16")
    assert len(again.variables) == len(model.variables)
    assert keras.config.dtype_policy().name == "float32"
    np.testing.assert_array_equal(again(inputs), model(inputs))


def test_a_text_model_of_another_policy_than_its_layers_is_refused():
    with pytest.raises(ValueError, match=r'global .*, float32. .*policy\("float64"\) before'):
        RNNLanguageModel(9, dtype="float64")
