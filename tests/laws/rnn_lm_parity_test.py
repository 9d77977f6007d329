"""Law 1 for the whole language model on the engine: streams that carry a state, and sentences."""

import collections
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.data.batches.texts import sentence_batches, stream_batches
from towers.data.samples import stories
from towers.data.text import build_words
from towers.models import language_model, rnn_lm

ROWS, STEPS, NUM_BATCHES = 7, 6, 5


@functools.cache
def text():
    """Returns the ids of some lines, and how many ids there are."""
    lines = stories.text("train").splitlines()[:100]
    words = [word for line in lines for word in (*line.split(), "<eos>")]
    vocabulary = build_words(collections.Counter(words), 80)
    return np.array(vocabulary.ids_of(words), np.int32), len(vocabulary)


def batches_of(form):
    """The first batches; those of the sentences have different lengths."""
    tokens = text()[0]
    if form == "streams":
        return stream_batches(tokens, ROWS, STEPS)(0).take(NUM_BATCHES)
    return sentence_batches(tokens, ROWS, seed=1)(0).take(NUM_BATCHES)


def fresh(form):
    """Returns (tower function, model, what the step carries), the same each time."""
    keras.utils.set_random_seed(3)
    model = rnn_lm.RNNLanguageModel(text()[1], hidden_size=8)
    if form == "sentences":
        return language_model.sentences(model, training=True), model, {}
    carried = {"carried": towers.Carried(model.state_specs(), ROWS)}
    return language_model.streams(model, training=True), model, carried


def optimizer_of(name):
    return keras.optimizers.SGD(2.0) if name == "sgd" else keras.optimizers.Adam(0.01)


@functools.cache
def plain(form, optimizer, policy, clip_norm=None):
    """A tape, and a state in the hand; returns the weights and the last state."""
    keras.config.set_dtype_policy(policy)
    tower_fn, model, carried = fresh(form)
    own, state = optimizer_of(optimizer), model.zero_state(ROWS)
    for batch in batches_of(form):
        with tf.GradientTape() as tape:
            if carried:
                loss_sum, weight, _, state = tower_fn(batch, state)
            else:
                loss_sum, weight, _ = tower_fn(batch)
            loss = loss_sum / weight
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        if clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, clip_norm)
        own.apply(gradients, model.trainable_variables)
    return helpers.weights_of(model), tf.nest.map_structure(np.array, state)


def train(tower_fn, model, optimizer, form, num_towers, **options):
    """Returns the step after all batches."""
    dataset = batches_of(form)
    step = helpers.build_step_for(
        tower_fn, model, optimizer_of(optimizer), dataset, num_towers, **options
    )
    for number, shards in enumerate(towers.engine.split(dataset, num_towers), 1):
        step(shards, number)
    return step


def check_parity(form, num_towers, optimizer="adam", policy="float32", **options):
    expected, state = plain(form, optimizer, policy, options.get("clip_norm"))
    keras.config.set_dtype_policy(policy)
    tower_fn, model, carried = fresh(form)
    step = train(tower_fn, model, optimizer, form, num_towers, **carried, **options)
    helpers.assert_same_weights(helpers.weights_of(model), expected, float64=policy == "float64")
    tolerance = 1e-12 if policy == "float64" else 1e-5
    if carried:
        rows = {
            variable.name: variable.read_value().numpy()
            for variable in step.update.carried.variables
        }
        assert set(rows) == {f"carried/{layer}/{part}" for layer in (0, 1) for part in "hc"}
        for name, actual in rows.items():
            _, layer, part = name.split("/")
            np.testing.assert_allclose(actual, state[int(layer)][part], rtol=0, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("num_towers", [1, 2, 4])
def test_towers_that_carry_match_the_plain_loop(num_towers):
    check_parity("streams", num_towers)


def test_towers_with_sentences_match_the_plain_loop():
    check_parity("sentences", 2)


@pytest.mark.slow
def test_clipped_and_accumulated_gradients_match_the_plain_loop():
    check_parity("streams", 2, "sgd", clip_norm=0.05, accumulate=2)


@pytest.mark.slow
def test_towers_match_the_plain_loop_in_float64():
    check_parity("streams", 2, policy="float64")


def test_shards_of_sentences_differ_in_weight():
    """The test of the test: a mean of the towers' means would differ."""
    for shards in towers.engine.split(batches_of("sentences"), 2):
        counts = {int(tf.math.count_nonzero(shard.batch[1])) for shard in shards}
        if len(counts) > 1:
            return
    pytest.fail("all shards have as many tokens as the others")


@pytest.mark.slow
def test_every_weight_moves():
    """The test of the test: a variable without gradient would match any loop."""
    for form, policy in (("streams", "float64"), ("sentences", "float32")):
        after, _ = plain(form, "adam", policy)  # As in the tests above.
        keras.config.set_dtype_policy(policy)
        _, model, _ = fresh(form)
        before = helpers.weights_of(model)
        assert all(np.any(one != other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize(
    "rows, num_towers",
    [*(pytest.param(*case, marks=pytest.mark.slow) for case in ((1, 1), (3, 2))), (5, 4)],
)
def test_evaluation_counts_every_token_once_and_carries_to_the_end(rows, num_towers):
    """The loss of each stream read at once, without batches, is the oracle."""
    keras.utils.set_random_seed(3)
    model = rnn_lm.RNNLanguageModel(text()[1], hidden_size=8, initial_scale=0.5)
    tokens = text()[0][:137]
    batches = stream_batches(tokens, rows, STEPS, drop_tail=False)
    step = towers.build_evaluation_step(
        language_model.streams(model, training=False),
        model,
        helpers.tower_placement(num_towers),
        batches,
        towers.Carried(model.state_specs(), rows),
    )
    metrics = towers.evaluate_step(step, batches(0))
    length = -(-len(tokens) // rows)
    before = np.concatenate([[1], tokens[:-1]]).astype("int32")
    total = 0.0
    for start in range(0, len(tokens), length):
        logits = model(before[None, start : start + length])[0]
        labels = tokens[start : start + length]
        total += float(
            tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        )
    assert metrics["examples"] == 137
    np.testing.assert_allclose(metrics["loss"], total / 137, rtol=1e-6)
