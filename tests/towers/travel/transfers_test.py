"""The upload and the download: what travels packed arrives as it was, and trains the same."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import helpers
from towers.step import exchange
from towers.travel import packing
from towers.travel.packing import Upload, cut_aligned, download, join_aligned, upload_for
from towers.variables.shared_variables import SharedVariables


@pytest.fixture
def packed(monkeypatch):
    """Towers on virtual CPUs get their values as GPUs do."""
    for module in (packing, exchange):
        monkeypatch.setattr(module, "needs_upload", lambda source, tower: source != tower)


@pytest.mark.parametrize(
    "source, towers, are_joined",
    [
        ("/CPU:0", ["/CPU:1", "/CPU:2"], False),
        ("/GPU:0", ["/GPU:0", "/GPU:1"], False),
        ("/CPU:0", ["/CPU:0", "/GPU:0"], True),
    ],
)
def test_values_are_joined_for_gpus_beside_variables_on_the_cpu_only(source, towers, are_joined):
    variables = [keras.Variable(np.ones(size, np.float32)) for size in (3, 4)]

    def run():
        upload_for(variables, [source], towers)

    graph = tf.function(run, autograph=False).get_concrete_function().graph
    joined = [op for op in graph.get_operations() if op.type.startswith("Concat")]
    assert bool(joined) == are_joined


def test_towers_with_copies_of_their_own_share_no_reads():
    own_copies = ["/CPU:0", "/GPU:1"]
    assert upload_for([keras.Variable(np.ones(3))], own_copies, own_copies) is None


def test_aligned_tensors_come_apart_as_they_were():
    tensors = [tf.reshape(tf.range(6.0), [2, 3]), tf.constant(7.0), tf.range(100.0), tf.zeros([32])]
    pieces = cut_aligned(join_aligned(tensors), tensors)
    for piece, tensor in zip(pieces, tensors, strict=True):
        np.testing.assert_array_equal(piece, tensor)


def test_a_single_tensor_becomes_a_vector_of_its_own_memory():
    """Otherwise the pack of a single variable would be the variable, which the update changes."""
    variable = tf.Variable(tf.zeros([64]))

    @tf.function(autograph=False)
    def run():
        vector = join_aligned([variable.read_value()])
        variable.assign_add(tf.ones([64]))
        return vector

    np.testing.assert_array_equal(run(), np.zeros(64))


def test_tables_integers_and_what_no_tower_uses_stay_out_of_the_upload(packed):
    table = keras.Variable(np.ones((5, 2), np.float32))
    counter = keras.Variable(np.array(3, np.int32), trainable=False, dtype="int32")
    half = keras.Variable(np.ones(3, np.float16), dtype="float16")
    weights = keras.Variable(np.arange(4, dtype=np.float32))
    other = keras.Variable(np.ones(2, np.float32))
    shared = SharedVariables([table, counter, half, weights, other], [table], unused=[other])
    values = Upload(shared.read_whole, "/CPU:0", ["/CPU:1"]).values("/CPU:1")
    assert set(values) == {id(half), id(weights)}
    np.testing.assert_array_equal(values[id(weights)], weights.numpy())
    np.testing.assert_array_equal(values[id(half)], half.numpy())


def test_gradients_arrive_as_they_were(monkeypatch):
    source, target = helpers.tower_devices(2)
    monkeypatch.setattr("towers.travel.packing.PACK_BYTES", 64)
    with tf.device(source):
        rows = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([4, 1]), tf.constant([5, 3]))
        gradients = [tf.range(5.0), None, rows, tf.range(4.0), tf.constant(2.0), tf.range(50.0)]
    arrived = download(gradients, source, target)
    assert arrived[1] is None
    np.testing.assert_array_equal(arrived[2].indices, [4, 1])
    for place in (0, 3, 4, 5):
        np.testing.assert_array_equal(arrived[place], gradients[place])
        assert arrived[place].device.endswith(target[1:])


@pytest.mark.parametrize("num_towers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_step_with_packed_values_trains_as_one_without(num_towers, packed, monkeypatch):
    """With a table that is only looked up: its rows travel, not in the pack."""

    def train():
        keras.utils.set_random_seed(1)
        model = helpers.recurrent_model(helpers.LookupTable())
        return helpers.train_on_towers(
            helpers.tag(model),
            model,
            keras.optimizers.Adam(0.1),
            helpers.token_batches([5, 4, 1]),
            num_towers,
            parameters="cpu",
        )[0]

    with_packs = train()
    monkeypatch.setattr(packing, "needs_upload", lambda *_: False)
    monkeypatch.setattr(exchange, "needs_upload", lambda *_: False)
    for packed_weights, weights in zip(with_packs, train(), strict=True):
        np.testing.assert_array_equal(packed_weights, weights)


@pytest.mark.parametrize("are_joined", [False, True])
def test_variables_are_read_once_for_all_towers(are_joined, request):
    if are_joined:
        request.getfixturevalue("packed")
    keras.utils.set_random_seed(1)
    model = helpers.dense_model()
    step, _ = helpers.build_step(
        helpers.classify(model),
        model,
        keras.optimizers.SGD(0.1),
        helpers.dense_batches([4]),
        2,
        parameters="cpu",
    )
    graph = step.graph
    reads = [op for op in graph.get_operations() if op.type == "ReadVariableOp"]
    trainable = {variable.value.handle.ref() for variable in model.trainable_variables}
    captures = {inner.op.name: outer.ref() for outer, inner in graph.captures}
    of_model = [op for op in reads if captures.get(op.inputs[0].op.name) in trainable]
    assert len(of_model) == len(trainable)
