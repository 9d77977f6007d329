"""An output that begins as a unigram model: its loss, and what it gives an optimizer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from towers.models.awd_lstm import AWDLanguageModel
from towers.models.rnn_lm import RNNLanguageModel
from towers.models.text_layers import predict_unigrams
from towers.models.transformer_lm import TransformerLanguageModel

VOCABULARY = 50
NETWORKS = {
    "lstm": lambda: RNNLanguageModel(VOCABULARY, hidden_size=8),
    "awd_lstm": lambda: AWDLanguageModel(VOCABULARY, embedding_size=8, hidden_size=8),
    "transformer": lambda: TransformerLanguageModel(VOCABULARY, size=8, heads=2, key_value_heads=1),
}


def entropy(shares):
    return -(shares * np.log(shares)).sum()


@pytest.mark.parametrize(
    ("network", "excess"),
    # The last normalisation of the Transformer makes logits of a standard deviation of 1.
    [("lstm", 0.01), ("awd_lstm", 0.01), ("transformer", 0.6)],
)
def test_an_untrained_network_predicts_the_shares_of_tokens(network, excess):
    keras.utils.set_random_seed(0)
    counts = 1000 // np.arange(1, VOCABULARY + 1)
    shares = (counts + 1) / (counts + 1).sum()
    model = NETWORKS[network]()
    tokens = np.random.default_rng(0).choice(VOCABULARY, (4, 60), p=shares)

    def loss():
        predicted = tf.nn.log_softmax(model(tokens.astype("int32")))
        return -float(tf.reduce_mean(tf.reduce_sum(shares * predicted, -1)))

    before = loss()
    predict_unigrams(model.output_bias, counts)
    assert entropy(shares) <= loss() < entropy(shares) + excess
    assert loss() < before - 0.5


def test_a_token_that_never_occurs_is_still_possible():
    bias = keras.Variable(np.ones(3, "float32"))
    predict_unigrams(bias, [5, 0, 1])
    np.testing.assert_allclose(np.exp(bias.numpy()), np.array([6, 1, 2]) / 9, rtol=1e-6)


@pytest.mark.parametrize(
    "counts", [[1, 2], [1, 2, -1], [1, 2, np.nan], [1, 2, np.inf], [[1, 2, 3]], []]
)
def test_counts_that_do_not_fit_are_an_error(counts):
    bias = keras.Variable(np.zeros(3, "float32"))
    with pytest.raises(ValueError, match="one for each token"):
        predict_unigrams(bias, counts)
    assert not bias.numpy().any()
