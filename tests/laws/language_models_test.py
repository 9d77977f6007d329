"""Laws 1, 8 and 9 for the networks of `language_model`: carried streams, and sentences."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.data.batches.texts import sentence_batches, stream_batches
from towers.models import language_model
from towers.models.awd_lstm import AWDLanguageModel
from towers.models.rnn_lm import RNNLanguageModel
from towers.models.transformer_lm import TransformerLanguageModel

VOCABULARY, ROWS, STEPS, NUM_BATCHES = 23, 7, 6, 4
NONE = dict.fromkeys(
    ("dropout_rate", "input_dropout_rate", "output_dropout_rate", "weight_dropout_rate"), 0.0
)
NETWORKS = {
    "lstm": lambda **rates: RNNLanguageModel(
        VOCABULARY, hidden_size=8, num_layers=1, dropout_rate=0.5 if rates else 0.0
    ),
    "awd_lstm": lambda **rates: AWDLanguageModel(
        VOCABULARY,
        embedding_size=8,
        hidden_size=10,
        word_dropout_rate=0.0,
        activation_penalty=2.0,
        temporal_penalty=1.0,
        **({**NONE} if not rates else {}),
    ),
    "transformer": lambda **rates: TransformerLanguageModel(
        VOCABULARY,
        size=8,
        heads=2,
        key_value_heads=1,
        feed_forward_size=12,
        num_layers=1,
        window=5,
        dropout_rate=0.5 if rates else 0.0,
    ),
}


def batches_of(form):
    tokens = np.random.default_rng(0).integers(2, VOCABULARY, 400).astype("int32")
    if form == "streams":
        return stream_batches(tokens, ROWS, STEPS)(0).take(NUM_BATCHES)
    tokens[np.random.default_rng(1).choice(399, 60, replace=False)] = 1  # Ends of lines.
    tokens[-1] = 1
    return sentence_batches(tokens, ROWS, seed=1)(0).take(NUM_BATCHES)


def fresh(network, form, **rates):
    """Returns (tower function, model, what the step carries), the same each time."""
    keras.utils.set_random_seed(3)
    model = NETWORKS[network](**rates)
    if form == "sentences":
        return language_model.sentences(model, training=True), model, {}
    carried = {"carried": towers.Carried(model.state_specs(), ROWS)}
    return language_model.streams(model, training=True), model, carried


@functools.cache
def plain(network, form):
    """A tape, and a state in the hand; returns the weights after all batches."""
    tower_fn, model, carried = fresh(network, form)
    optimizer, state = keras.optimizers.Adam(0.01), model.zero_state(ROWS)
    for batch in batches_of(form):
        with tf.GradientTape() as tape:
            results = tower_fn(batch, state) if carried else tower_fn(batch)
            loss = results[0] / results[1]
        state = results[-1] if carried else state
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        optimizer.apply([*map(tf.convert_to_tensor, gradients)], model.trainable_variables)
    return helpers.weights_of(model)


def train(network, form, num_towers, *, compiled=False, **rates):
    """Returns the model and the reported losses of all batches."""
    tower_fn, model, carried = fresh(network, form, **rates)
    dataset, optimizer = batches_of(form), keras.optimizers.Adam(0.01)
    options = {**carried, "compiled": compiled}
    step = helpers.build_step_for(tower_fn, model, optimizer, dataset, num_towers, **options)
    results = [
        step(shards, number)
        for number, shards in enumerate(towers.engine.split(dataset, num_towers), 1)
    ]
    return model, results


DEFAULT = ("transformer", "streams", 2)  # Each case builds a step; the others by name.
CASES = [
    (network, form, num_towers)
    for network in NETWORKS
    for form in ("streams", "sentences")
    for num_towers in (1, 2, 3)
]


@pytest.mark.parametrize(
    "network, form, num_towers",
    [pytest.param(*case, marks=() if case == DEFAULT else pytest.mark.slow) for case in CASES],
)
def test_any_number_of_towers_matches_the_plain_loop(network, form, num_towers):
    keras.config.set_dtype_policy("float64")
    model, _ = train(network, form, num_towers)
    helpers.assert_same_weights(helpers.weights_of(model), plain(network, form), float64=True)


@pytest.mark.parametrize("form", ["streams", pytest.param("sentences", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "network",
    [pytest.param(one, marks=() if one == "lstm" else pytest.mark.slow) for one in NETWORKS],
)
def test_towers_that_xla_compiles_match_the_plain_loop(network, form):
    keras.config.set_dtype_policy("float64")
    model, _ = train(network, form, 2, compiled=True)
    helpers.assert_same_weights(helpers.weights_of(model), plain(network, form), float64=True)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["streams", "sentences"])
@pytest.mark.parametrize("network", NETWORKS)
def test_one_trace_takes_every_batch(network, form):
    """Also the sentences, whose batches have any length."""
    tower_fn, model, carried = fresh(network, form)
    calls = []

    def counting(*arguments):
        calls.append(arguments)
        return tower_fn(*arguments)

    dataset = batches_of(form)
    step = helpers.build_step_for(
        counting, model, keras.optimizers.Adam(0.01), dataset, 2, **carried
    )
    num_traces = len(calls)
    shapes = set()
    for number, shards in enumerate(towers.engine.split(dataset, 2), 1):
        step(shards, number)
        shapes.add(tuple(tuple(part.shape) for part in tf.nest.flatten(shards)))
    assert len(calls) == num_traces <= 1 + 2
    assert (len(shapes) > 1) == (form == "sentences")


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_dropout_is_a_function_of_the_step_and_the_part(network):
    """Two runs draw the same masks; towers and steps draw different ones."""
    first, second = (train(network, "streams", 2, dropout=True) for _ in range(2))
    for one, other in zip(*map(helpers.weights_of, (first[0], second[0])), strict=True):
        np.testing.assert_array_equal(one, other)
    without, _ = train(network, "streams", 2)
    pairs = zip(helpers.weights_of(first[0]), helpers.weights_of(without), strict=True)
    assert any(np.abs(one - other).max() > 1e-4 for one, other in pairs)
