"""Law 1, 3, 4 and 8 for the whole sequence-to-sequence models on the engine."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.devices.op_devices import record_placed_nodes
from towers.models.answering import answering
from towers.models.seq2seq import Seq2Seq
from towers.models.transformer import Transformer

SLOW = pytest.mark.slow
VOCABULARY = 30
SIZES = [7, 5, 8]
TOWER_DEVICES = {"tower_0": "CPU:1", "tower_1": "CPU:2"}

TRANSFORMER = {"size": 8, "heads": 2, "feed_forward_size": 12}
# Layers of the same kind add time, and no other kind of variable.
TRANSFORMER |= {"encoder_layers": 1, "decoder_layers": 1}
CASES = {
    "lookup": {},
    "tied": {"tied_output": True},
    "scaled": {"attention": "luong_scaled", "cell": "gru"},
    "bahdanau": {"attention": "bahdanau"},
    "fed": {"input_feeding": True, "cell": "gru", "tied_output": True},
    "transformer": TRANSFORMER,
    "untied": {**TRANSFORMER, "tied_output": False},
    "deep": {"encoder_layers": 2, "decoder_layers": 2, "residual": True, "cell": "gru"},
}


def pair_batches(batch_sizes=SIZES):
    """Batches (question, answer), int32 [batch, 5] and [batch, 4], of any lengths.

    3 is the unknown token, which counts for nothing, so that shards differ in weight.
    """
    random = np.random.default_rng(0)
    return [tuple(padded_tokens(random, size, length) for length in (5, 4)) for size in batch_sizes]


def padded_tokens(random, size, length):
    tokens = random.integers(2, VOCABULARY, (size, length)).astype("int32")
    tokens[np.arange(length) >= random.integers(1, length + 1, size)[:, None]] = 0
    return tokens


def fresh(options):
    """Returns (tower function, model), the same each time."""
    keras.utils.set_random_seed(3)
    if "heads" in options:
        model = Transformer(VOCABULARY, **options)
    else:
        model = Seq2Seq(VOCABULARY, embedding_size=6, hidden_size=8, **options)
    return answering(model, training=True), model


def optimizer_of(name):
    return keras.optimizers.SGD(0.5) if name == "sgd" else keras.optimizers.Adam(0.01)


@functools.cache
def plain(case, optimizer, policy, clip_norm=None):
    keras.config.set_dtype_policy(policy)
    tower_fn, model = fresh(CASES[case])
    return helpers.train_plainly(
        tower_fn, model, optimizer_of(optimizer), pair_batches(), clip_norm=clip_norm
    )


def check_parity(case, num_towers, optimizer, policy="float32", **options):
    expected, losses = plain(case, optimizer, policy, options.get("clip_norm"))
    keras.config.set_dtype_policy(policy)
    tower_fn, model = fresh(CASES[case])
    actual, results = helpers.train_on_towers(
        tower_fn, model, optimizer_of(optimizer), pair_batches(), num_towers, **options
    )
    assert {array.dtype.name for array in actual} == {policy}
    helpers.assert_same_weights(actual, expected, float64=policy == "float64")
    np.testing.assert_allclose([float(result.loss) for result in results], losses, rtol=1e-5)


@pytest.mark.parametrize(
    ("case", "num_towers"),
    [
        ("lookup", 2),
        *[pytest.param("lookup", number, marks=pytest.mark.slow) for number in (1, 3)],
        *[pytest.param("tied", number, marks=pytest.mark.slow) for number in (1, 2, 3)],
    ],
)
def test_any_number_of_towers_matches_the_plain_loop(case, num_towers):
    check_parity(case, num_towers, "adam" if num_towers == 1 else "sgd")


@pytest.mark.slow
@pytest.mark.parametrize("case", ["scaled", "bahdanau", "fed", "deep"])
def test_every_kind_of_model_matches_the_plain_loop(case):
    check_parity(case, 2, "sgd" if case == "fed" else "adam")


@pytest.mark.parametrize("case", ["fed", "lookup", "tied", "transformer", "untied"])
@pytest.mark.slow
def test_clipped_and_accumulated_gradients_match_the_plain_loop(case):
    check_parity(case, 2, "sgd", clip_norm=0.1, accumulate=2)


@pytest.mark.parametrize(
    ("case", "num_towers"),
    [
        ("transformer", 2),
        *[
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("bahdanau", 1),
                ("lookup", 3),
                ("fed", 2),
                ("deep", 2),
                ("transformer", 1),
                ("transformer", 3),
            )
        ],
    ],
)
def test_towers_match_the_plain_loop_in_float64(case, num_towers):
    check_parity(case, num_towers, "adam", "float64")


@pytest.mark.parametrize("case", [*(pytest.param(case, marks=SLOW) for case in CASES)])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_towers_that_xla_compiles_match_the_plain_loop(case, accumulate):
    check_parity(case, 2, "sgd", "float64", compiled=True, accumulate=accumulate)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=SLOW) for case in ("untied", "transformer", "lookup")]
)
def test_one_trace_takes_pairs_of_any_length_and_fewer_than_the_towers(case):
    """With label smoothing, against the plain loop: a tower without a pair counts nothing."""
    keras.config.set_dtype_policy("float64")
    full = zip(pair_batches([4, 1, 2]), [(5, 4), (4, 1), (2, 3)], strict=True)
    batches = [(question[:, :n], answer[:, :m]) for (question, answer), (n, m) in full]
    dataset = tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=(tf.TensorSpec([None, None], tf.int32),) * 2
    )
    _, model = fresh(CASES[case])
    smoothed = answering(model, training=True, label_smoothing=0.1)
    expected, _ = helpers.train_plainly(smoothed, model, optimizer_of("adam"), batches)
    _, model = fresh(CASES[case])
    tower_fn, calls = counted(answering(model, training=True, label_smoothing=0.1))
    step = helpers.build_step_for(tower_fn, model, optimizer_of("adam"), dataset, 3, probe=True)
    for number, shards in enumerate(towers.engine.split(dataset, 3), 1):
        step(shards, number)
    # Once to see how the variables are used, once per tower, once by the probe.
    assert len(calls) == 1 + 3 + 1
    helpers.assert_same_weights(helpers.weights_of(model), expected, float64=True)


def counted(tower_fn):
    """Returns the tower function and the list of its calls, one for each trace."""
    calls = []

    def counting(shard):
        calls.append(shard)
        return tower_fn(shard)

    return counting, calls


@pytest.mark.parametrize(
    ("case", "optimizer", "policy", "clip_norm"),
    [  # By default those that other tests have trained already.
        ("lookup", "sgd", "float32", None),
        ("transformer", "adam", "float64", None),
        pytest.param("fed", "sgd", "float32", 0.1, marks=pytest.mark.slow),
        pytest.param("bahdanau", "adam", "float64", None, marks=pytest.mark.slow),
        pytest.param("untied", "sgd", "float32", 0.1, marks=pytest.mark.slow),
        pytest.param("tied", "sgd", "float32", None, marks=pytest.mark.slow),
        pytest.param("scaled", "adam", "float32", None, marks=pytest.mark.slow),
        pytest.param("deep", "adam", "float32", None, marks=pytest.mark.slow),
    ],
)
def test_every_weight_moves(case, optimizer, policy, clip_norm):
    """The test of the test: a variable without gradient would match any loop."""
    after, _ = plain(case, optimizer, policy, clip_norm)
    _, model = fresh(CASES[case])
    before = helpers.weights_of(model)
    assert all(np.any(one != other) for one, other in zip(before, after, strict=True))


def test_shards_differ_in_weight():
    """The test of the test: a mean of the towers' means would differ."""
    for answers in np.array_split(pair_batches()[0][1], 3), np.array_split(pair_batches()[1][1], 2):
        assert len({np.count_nonzero((part > 0) & (part != 3)) for part in answers}) > 1


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
def test_rows_of_a_looked_up_table_stay_sparse_up_to_the_optimizer(tied):
    tower_fn, model = fresh({"tied_output": tied})
    optimizer = RecordingSGD(0.1)
    helpers.train_on_towers(tower_fn, model, optimizer, pair_batches(), 2)
    assert optimizer.sparse == (set() if tied else {model.embedding.table.path + ":0"})


class RecordingSGD(keras.optimizers.SGD):
    """Remembers which variables it was given rows for."""

    sparse = frozenset()

    def update_step(self, gradient, variable, learning_rate):
        if isinstance(gradient, tf.IndexedSlices):
            self.sparse = self.sparse | {variable.name}
        super().update_step(gradient, variable, learning_rate)


@pytest.fixture(
    scope="module",
    params=[pytest.param(cell, marks=pytest.mark.slow) for cell in ("lstm", "gru fed")],
)
def placed(request):
    """One step on two towers: its graph, and every op that ran as (type, tower, device)."""
    cell, *fed = request.param.split()
    tower_fn, model = fresh({"cell": cell, "input_feeding": bool(fed)})
    step, shards = helpers.build_step(tower_fn, model, optimizer_of("adam"), pair_batches([5]), 2)
    with record_placed_nodes() as nodes:
        step(shards[0], 1)
    return step.graph, [(n.op, tower_of(n.name), device) for n, device in nodes]


def tower_of(name):
    parts = name.removeprefix("gradient_tape/").split("/")
    return parts[0] if parts[0].startswith("tower_") else None


def test_layers_and_loops_run_on_their_own_tower(placed):
    for kind in ("MatMul", "Sigmoid", "Tanh", "TensorListSetItem", "Softmax"):
        found = {}
        for op, tower, device in placed[1]:
            if kind in op:
                found.setdefault(tower, set()).add(device)
        assert found == {tower: {device} for tower, device in TOWER_DEVICES.items()}, kind


def test_variables_are_read_and_rows_gathered_where_they_live(placed):
    kinds = ("ReadVariableOp", "ResourceGather", "AssignVariableOp")
    devices = {(op, device) for op, _, device in placed[1] if op in kinds}
    assert {op for op, _ in devices} >= {"ReadVariableOp", "ResourceGather"}
    assert {device for _, device in devices} == {"CPU:0"}


def test_no_variable_is_read_in_a_loop_body(placed):
    library = placed[0].as_graph_def().library
    bodies = [one for one in library.function if "while" in one.signature.name]
    assert bodies
    for body in bodies:
        kinds = {node.op for node in body.node_def}
        assert not kinds & {"ReadVariableOp", "ResourceGather"}


def test_no_table_travels(placed):
    reads = [op for op in placed[0].get_operations() if op.type == "ReadVariableOp"]
    shapes = [op.outputs[0].shape.as_list() for op in reads if tower_of(op.name)]
    assert [VOCABULARY, 8] in shapes  # The output projection.
    assert [VOCABULARY, 6] not in shapes
