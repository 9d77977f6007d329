"""Law 1 with a state that goes on: N towers and a plain loop that carries it by hand are equal."""

import collections
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from tests.towers.saving.saved_groups import write_checkpoint
from towers.batches.calls import in_calls
from towers.devices.op_devices import record_placed_nodes
from towers.saving.checkpoint_files import read_checkpoint, value_of
from towers.saving.checkpoints import restore
from towers.step.carried import Carried, CarriedState
from towers.step.options import LossScale

ROWS, LENGTH, UNITS = 7, 4, 6
NUM_STEPS = 5


class LanguageModel(keras.Model):
    """Token ids [rows, length] and a state of two parts to logits and the new state.

    Each batch reads its beginning state once: recurrent layers, which are slow to build, have
    parity tests of their own.
    """

    def __init__(self):
        super().__init__()
        self.table = helpers.LookupTable(name="table")
        self.inputs_to_hidden = keras.layers.Dense(UNITS)
        self.state_to_hidden = keras.layers.Dense(UNITS, use_bias=False)
        self.logits = keras.layers.Dense(helpers.VOCABULARY_SIZE)

    def call(self, inputs):
        token_ids, state = inputs
        before = self.state_to_hidden(state["h"]) + state["c"]
        hidden = tf.tanh(self.inputs_to_hidden(self.table(token_ids)) + before[:, None])
        state = {"h": hidden[:, -1], "c": state["c"] / 2 + tf.reduce_mean(hidden, 1)}
        return self.logits(hidden), state


def predict_next(model):
    """The tower function of a language model; rows where a stream begins get a state of zeros."""

    def tower_fn(batch, state):
        inputs, targets, starts = batch
        goes_on = tf.cast(~starts[:, None], state["h"].dtype)
        state = tf.nest.map_structure(lambda part: part * goes_on, state)
        logits, state = model((inputs, state))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
        correct = tf.equal(tf.argmax(logits, -1, tf.int32), targets)
        weight = tf.cast(tf.size(targets), losses.dtype)
        metrics = {"accuracy": helpers.count(correct, losses)}
        return tf.reduce_sum(losses), weight, metrics, state

    return tower_fn


def specs():
    row = tf.TensorSpec([UNITS], keras.config.dtype_policy().compute_dtype)
    return {"h": row, "c": row}


def stream_batches(rows=ROWS, num_batches=NUM_STEPS, *, seed=0):
    """Batches (inputs int32 [rows, length], targets like them, starts bool [rows])."""
    random = np.random.default_rng(seed)
    shape = (rows, num_batches * LENGTH + 1)
    streams = random.integers(0, helpers.VOCABULARY_SIZE, shape).astype("int32")
    batches = []
    for index in range(num_batches):
        part = streams[:, index * LENGTH : (index + 1) * LENGTH + 1]
        starts = np.full(rows, index == 0) | (random.random(rows) < 0.2)
        batches.append((part[:, :-1], part[:, 1:], starts))
    return batches


def zeros(rows=ROWS):
    return tf.nest.map_structure(lambda spec: tf.zeros([rows, *spec.shape], spec.dtype), specs())


def train_plainly(batches, *, clip_norm=None, carries=True):
    """A tape, a state in the hand, and nothing else; returns (model, state, losses)."""
    keras.utils.set_random_seed(3)
    model, optimizer = LanguageModel(), keras.optimizers.Adam(0.02)
    tower_fn, state, losses = predict_next(model), zeros(len(batches[0][0])), []
    for batch in batches:
        with tf.GradientTape() as tape:
            loss_sum, weight, _, new_state = tower_fn(tuple(map(tf.constant, batch)), state)
            loss = loss_sum / weight
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        if clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, clip_norm)
        optimizer.apply(gradients, model.trainable_variables)
        state = new_state if carries else state
        losses.append(float(loss))
    return model, state, losses


@functools.cache
def plain(policy="float32", rows=ROWS, clip_norm=None, carries=True):
    model, state, losses = train_plainly(stream_batches(rows), clip_norm=clip_norm, carries=carries)
    return helpers.weights_of(model), tf.nest.map_structure(np.array, state), losses


def build(num_towers, batches, **options):
    """A fresh model, its step on towers, and the shards of every batch."""
    keras.utils.set_random_seed(3)
    model = LanguageModel()
    options = {"carried": Carried(specs(), len(batches[0][0])), **options}
    step, shards = helpers.build_step(
        predict_next(model), model, keras.optimizers.Adam(0.02), batches, num_towers, **options
    )
    return model, step, shards


@functools.cache
def built_once(num_towers):
    """What `build` returns, once for all tests of so many towers, and the first values."""
    model, step, shards = build(num_towers, stream_batches())
    return model, step, shards, arrays_of(step)


def begun(num_towers):
    """A step of `built_once` with the values that a fresh one has."""
    model, step, shards, values = built_once(num_towers)
    variables = [variable for group in groups_of(step).values() for variable in group]
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    return model, step, shards


def run(step, shards, first=1):
    return [step(one, number) for number, one in enumerate(shards, first)]


def state_of(step):
    return {variable.name: value_of(variable) for variable in step.update.carried.variables}


def assert_same_state(step, expected, *, atol=1e-6):
    actual = state_of(step)
    assert set(actual) == {"carried/h", "carried/c"}
    for name, rows in actual.items():
        np.testing.assert_allclose(rows, expected[name[-1]], rtol=0, atol=atol)


ACCUMULATED = {"accumulate": 3, "clip_norm": 0.05}


@pytest.mark.parametrize(
    ("options", "num_towers"),
    [
        pytest.param(ACCUMULATED, 1, marks=pytest.mark.slow),
        *[pytest.param({}, number, marks=pytest.mark.slow) for number in (1, 2, 3, 4)],
        pytest.param({"clip_norm": 0.05}, 2, marks=pytest.mark.slow),
        pytest.param(ACCUMULATED, 3, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_towers_that_carry_match_the_plain_loop(options, num_towers):
    expected, state, losses = plain(clip_norm=options.get("clip_norm"))
    model, step, shards = build(num_towers, stream_batches(), **options)
    results = run(step, shards)
    helpers.assert_same_weights(helpers.weights_of(model), expected)
    assert_same_state(step, state)
    np.testing.assert_allclose([float(result.loss) for result in results], losses, rtol=1e-5)


@pytest.mark.parametrize(
    "num_towers, accumulate",
    [(3, 1), *(pytest.param(*way, marks=pytest.mark.slow) for way in ((1, 1), (2, 2)))],
)
def test_towers_that_carry_match_the_plain_loop_in_float64(num_towers, accumulate):
    keras.config.set_dtype_policy("float64")
    expected, state, _ = plain("float64", clip_norm=0.05)
    model, step, shards = build(num_towers, stream_batches(), accumulate=accumulate, clip_norm=0.05)
    run(step, shards)
    helpers.assert_same_weights(helpers.weights_of(model), expected, float64=True)
    assert state_of(step)["carried/h"].dtype == np.float64
    assert_same_state(step, state, atol=1e-12)


@pytest.mark.parametrize(
    "rows, accumulate",
    [(1, 1), *(pytest.param(*way, marks=pytest.mark.slow) for way in ((2, 2), (5, 2)))],
)
def test_fewer_rows_than_towers_and_micro_batches_match_the_plain_loop(rows, accumulate):
    expected, state, _ = plain(rows=rows)
    model, step, shards = build(4, stream_batches(rows), accumulate=accumulate)
    run(step, shards)
    helpers.assert_same_weights(helpers.weights_of(model), expected)
    assert_same_state(step, state)


def test_a_state_that_does_not_go_on_would_differ():
    """The test of the test."""
    carried, forgetful = plain()[0], plain(carries=False)[0]
    assert max(np.abs(one - other).max() for one, other in zip(carried, forgetful, strict=True)) > (
        1e-4
    )


@pytest.mark.slow
def test_compiled_towers_carry_too():
    expected, state, _ = plain()
    model, step, shards = build(2, stream_batches(), compiled=True)
    run(step, shards)
    helpers.assert_same_weights(helpers.weights_of(model), expected)
    assert_same_state(step, state)


def test_rows_where_a_stream_begins_have_forgotten_what_came_before():
    first, second = stream_batches(num_batches=2)
    begin_anew = (*second[:2], np.arange(ROWS) % 2 == 0)
    one, other = towers.engine.split(helpers.dataset_of([first, begin_anew]), 3)
    _, step, _ = begun(3)
    step(one, 1)
    weights = [variable.numpy() for variable in step.update.copies.shared.all]
    step(other, 2)
    gone_on = state_of(step)
    begun(3)
    for variable, value in zip(step.update.copies.shared.all, weights, strict=True):
        variable.assign(value)
    step(other, 2)
    differs = [
        (gone_on[name] != state_of(step)[name]).any(axis=1) for name in ("carried/h", "carried/c")
    ]
    np.testing.assert_array_equal(differs, [np.arange(ROWS) % 2 == 1] * 2)


@pytest.mark.parametrize("loss_scale", [pytest.param(None, marks=pytest.mark.slow), 8.0])
def test_a_step_without_a_finite_gradient_keeps_the_state(loss_scale):
    loss_scale = loss_scale and LossScale(initial=loss_scale)
    model, step, (one, other, *_) = build(2, stream_batches(), loss_scale=loss_scale)
    step(one, 1)
    before = state_of(step)
    kernel = model.logits.kernel
    good = kernel.numpy()
    kernel.assign(good * np.nan)
    assert not bool(step(other, 2).finite)
    for name, rows in state_of(step).items():
        np.testing.assert_array_equal(rows, before[name])
    kernel.assign(good)
    assert bool(step(other, 3).finite)
    assert all(np.isfinite(rows).all() for rows in state_of(step).values())


# Checkpoints.


def groups_of(step):
    return step.groups()


def arrays_of(step):
    return [np.array(value_of(v)) for group in groups_of(step).values() for v in group]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Returns the checkpoint of so many towers after two steps, and what they end with."""

    @functools.cache
    def save(num_towers):
        path = tmp_path_factory.mktemp("saved") / "middle"
        _, step, shards = begun(num_towers)
        run(step, shards[:2])
        write_checkpoint(path, 2, groups_of(step), {})
        run(step, shards[2:], first=3)
        return read_checkpoint(path), arrays_of(step)

    return save


@pytest.mark.parametrize("num_towers", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_resumed_run_is_the_same(saved, num_towers):
    """Without determinism the last bit may differ; the laws of killed runs hold every bit."""
    checkpoint, uninterrupted = saved(num_towers)
    _, again, shards = build(num_towers, stream_batches())
    restore(checkpoint, groups_of(again))
    run(again, shards[2:], first=3)
    for one, other in zip(arrays_of(again), uninterrupted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-7 * np.abs(other).max())


@pytest.mark.parametrize(
    "before, after",
    [
        (3, 2),
        pytest.param(1, 4, marks=pytest.mark.slow),
        pytest.param(4, 1, marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_of_some_towers_resumes_on_others(saved, before, after):
    checkpoint, _ = saved(before)
    model, step, shards = begun(after)
    restore(checkpoint, groups_of(step))
    for saved in checkpoint.groups["carried"]:
        np.testing.assert_array_equal(saved.array, state_of(step)[saved.path])
    run(step, shards[2:], first=3)
    expected, state, _ = plain()
    helpers.assert_same_weights(helpers.weights_of(model), expected)
    assert_same_state(step, state)


def test_a_state_of_other_rows_is_refused(saved):
    checkpoint, _ = saved(3)
    _, step, _ = build(2, stream_batches(rows=5))
    message = r"Shape differs: carried/c, checkpoint \[7, 6\], model \[5, 6\]"
    with pytest.raises(ValueError, match=message):
        restore(checkpoint, groups_of(step))


def test_rows_of_any_dtype_are_restored_bit_for_bit():
    nest = {
        "big": [tf.TensorSpec([2, 3], tf.bfloat16), tf.TensorSpec([], tf.int64)],
        "flag": (tf.TensorSpec([4], tf.bool),),
    }
    states = [CarriedState(Carried(nest, 5), helpers.tower_devices(number)) for number in (3, 2)]
    names = [variable.name for variable in states[0].variables]
    assert names == ["carried/big/0", "carried/big/1", "carried/flag/0"]
    random = np.random.default_rng(0)
    for one, other in zip(*(state.variables for state in states), strict=True):
        rows = random.normal(size=one.shape).astype(one.dtype.as_numpy_dtype)
        one.assign(rows)
        other.assign(value_of(one))
        assert value_of(other).tobytes() == rows.tobytes()
        assert one.shape == (5, *one.shape[1:])


# Where it is.


def test_the_state_stays_on_its_towers():
    _, step, (shards, *_) = build(2, stream_batches())
    with record_placed_nodes() as nodes:
        step(shards, 1)
    devices = {}
    for node, device in nodes:
        if "carried" in node.name or node.op == "EnsureShape":
            devices.setdefault(node.op, set()).add(device)
    assert devices["ReadVariableOp"] == devices["EnsureShape"] == {"CPU:1", "CPU:2"}
    for variable in step.update.carried.variables:
        assert [part.device[-5:] for part in variable._parts] == ["CPU:1", "CPU:2"]
        assert [part.shape[0] for part in variable._parts] == [4, 3]


def test_no_gradient_flows_into_the_step_before():
    """The state reaches no tape: what a tower differentiates are the variables' values alone."""
    row = tf.TensorSpec([1], tf.float32)
    weight = keras.Variable([2.0], name="weight")

    def tower_fn(batch, state):
        state = weight * batch + state
        return tf.reduce_sum(state), tf.size(batch), {}, state

    step, shards = helpers.build_step(
        tower_fn, [weight], keras.optimizers.SGD(0.0), [np.ones((2, 1), "float32")] * 3, 2,
        carried=Carried(row, 2),
    )  # fmt: skip
    results = run(step, shards)
    assert [float(result.loss) for result in results] == [2, 4, 6]
    assert [float(result.gradient_norm) for result in results] == [1, 1, 1]


# Evaluation.


def evaluation(num_towers, batches, model):
    dataset, placement = helpers.dataset_of(batches), helpers.tower_placement(num_towers)
    carried = Carried(specs(), len(batches[0][0]))
    step = towers.build_evaluation_step(predict_next(model), model, placement, dataset, carried)
    return step, dataset


@pytest.mark.parametrize(
    "num_towers", [*(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2)), 4]
)
def test_every_evaluation_begins_with_zeros_and_carries_on(num_towers):
    batches = [(inputs, targets, np.zeros(3, bool)) for inputs, targets, _ in stream_batches(3)]
    model = LanguageModel()
    tower_fn, state, sums = predict_next(model), zeros(3), np.zeros(2)
    for batch in batches:
        loss, weight, _, state = tower_fn(tuple(map(tf.constant, batch)), state)
        sums += float(loss), float(weight)
    step, dataset = evaluation(num_towers, batches, model)
    first, second = (towers.evaluate_step(step, dataset) for _ in range(2))
    np.testing.assert_allclose(first["loss"], sums[0] / sums[1], rtol=1e-6)
    assert first == second


def test_an_evaluation_leaves_the_training_state_alone():
    model, step, shards = begun(2)
    run(step, shards)
    before = state_of(step)
    towers.evaluate_step(*evaluation(2, stream_batches(3), model))
    for name, rows in state_of(step).items():
        np.testing.assert_array_equal(rows, before[name])


def test_a_state_has_its_own_name_whatever_the_order_of_a_dict():
    row = {"z": tf.TensorSpec([2]), "a": tf.TensorSpec([3])}
    for specs in (row, collections.OrderedDict(row), [row, tf.TensorSpec([4])]):
        variables = CarriedState(Carried(specs, 5), helpers.tower_devices(2)).variables
        shapes = {one.name.rsplit("/", 1)[-1]: one.shape.as_list() for one in variables}
        assert shapes["a"] == [5, 3] and shapes["z"] == [5, 2]
        assert [one.shape[1:] for one in variables] == [one.shape for one in tf.nest.flatten(specs)]


# What cannot work.


@pytest.mark.parametrize(
    "carried, rows, message",
    [
        (tf.TensorSpec([3]), None, r"number of rows in every batch.*Received None"),
        (tf.TensorSpec([3]), 0, r"number of rows in every batch.*Received 0"),
        (None, 4, r"carried must be a nest of tf\.TensorSpec.*Received None"),
        ({}, 4, r"carried must be a nest of tf\.TensorSpec.*Received {}"),
        (tf.TensorSpec([None, 3]), 4, r"the fully defined shape of one row"),
        ([3, 4], 4, r"a nest of tf\.TensorSpec.*Received \[3, 4\]"),
    ],
)
def test_rows_and_their_number_go_together(carried, rows, message):
    with pytest.raises(ValueError, match=message):
        build(2, stream_batches(), carried=Carried(carried, rows))


def test_several_processes_carry_no_state():
    model, batches = LanguageModel(), stream_batches(4)
    placement, dataset = helpers.tower_placement(2), helpers.dataset_of(batches)
    tower_fn, carried, message = predict_next(model), Carried(specs(), 2), r"carried=.*2 processes"
    with pytest.raises(ValueError, match=message):
        towers.build_train_step(
            tower_fn, model, keras.optimizers.SGD(), placement, dataset,
            towers.StepOptions(carried=carried), helpers.OneOfTwo(),
        )  # fmt: skip
    with pytest.raises(ValueError, match=message):
        towers.build_evaluation_step(
            tower_fn, model, placement, dataset, carried, processes=helpers.OneOfTwo()
        )


def test_a_batch_of_other_rows_is_refused():
    batches = [*stream_batches(7, 1), *stream_batches(5, 1)]
    model, step, _ = begun(2)
    one, other = towers.engine.split(helpers.dataset_of(batches), 2)
    step(one, 1)
    message = r"the 7 rows whose state.* \[4, 3\] .*drop a smaller last.*shards of \[3, 2\] rows"
    with pytest.raises(ValueError, match=message):
        step(other, 2)
    (call,) = in_calls(towers.engine.split(helpers.dataset_of(batches), 2), 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the 7 rows whose state"):
        step.several(call, 1)
    step, dataset = evaluation(2, batches, model)
    with pytest.raises(ValueError, match=message):
        towers.evaluate_step(step, dataset)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda results: results[:3], r"returns \(loss_sum, weight, metrics, state\)"),
        (lambda results: None, r"returns \(loss_sum, weight, metrics, state\).*Received None"),
        (lambda results: (tf.stack([results[0]]), *results[1:]), "a floating-point scalar"),
        (lambda results: (*results[:3], {"h": results[3]["h"]}), "must have the structure"),
        (
            lambda results: (
                *results[:3],
                tf.nest.map_structure(lambda part: part[:, :2], results[3]),
            ),
            "the dtypes and the shapes of the old one",
        ),
        (
            lambda results: (
                *results[:3],
                tf.nest.map_structure(lambda part: tf.cast(part, tf.float16), results[3]),
            ),
            "the dtypes and the shapes of the old one",
        ),
    ],
)
def test_wrong_results_of_a_tower_function_that_carries_are_explained(change, message):
    model = LanguageModel()
    tower_fn = predict_next(model)
    with pytest.raises(ValueError, match=message):
        helpers.build_step(
            lambda batch, state: change(tower_fn(batch, state)),
            model,
            keras.optimizers.SGD(0.1),
            stream_batches(),
            2,
            carried=Carried(specs(), ROWS),
        )
