"""The laws for towers of several devices: the numbers of one device each, and where ops run."""

import collections
import functools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from tests.laws.seq2seq_parity_test import CASES as ANSWERING
from tests.laws.seq2seq_parity_test import VOCABULARY, pair_batches
from towers.devices.op_devices import record_placed_nodes, short_device
from towers.models import awd_lstm, language_model, rnn_lm, transformer_lm
from towers.models.answering import answering
from towers.models.seq2seq import Seq2Seq
from towers.models.transformer import Transformer
from towers.saving.checkpoint_files import value_of

pytestmark = pytest.mark.usefixtures("sums_as_written")
SLOW = pytest.mark.slow
PAIRS = (("/CPU:1", "/CPU:2"), ("/CPU:3", "/CPU:4"))
LANGUAGE = {
    "lstm": lambda: rnn_lm.RNNLanguageModel(VOCABULARY, hidden_size=8, dropout_rate=0.2),
    "awd_lstm": lambda: awd_lstm.AWDLanguageModel(VOCABULARY, embedding_size=6, hidden_size=8),
    "transformer_lm": lambda: transformer_lm.TransformerLanguageModel(
        VOCABULARY, size=8, heads=2, feed_forward_size=8, num_layers=2, window=4
    ),
}


def dense_task():
    """An own model, with the layers that each tower's second device runs."""
    inputs = keras.Input((5,))
    x = keras.layers.Dense(8, activation="tanh", name="hidden")(inputs)
    x = keras.layers.Dropout(0.2, name="dropped")(keras.layers.Dense(8, name="upper")(x))
    x = keras.layers.BatchNormalization(name="upper_norm")(x)
    model = keras.Model(inputs, keras.layers.Dense(3, name="upper_logits")(x))
    return model, helpers.classify(model, training=True), helpers.dense_batches([7, 5, 1])


def dense_stage(layer):
    return int(layer.name.startswith("upper"))


def task_of(name):
    """Returns (model, tower function, batches)."""
    if name == "dense":
        return dense_task()
    if name in LANGUAGE:
        model = LANGUAGE[name]()
        batches = [(pair[0][:, :4], pair[1]) for pair in pair_batches()]
        return model, language_model.sentences(model, training=True), batches
    options = dict(ANSWERING[name])
    make = Transformer if "heads" in options else functools.partial(Seq2Seq, embedding_size=6)
    if "heads" not in options:
        options["hidden_size"] = 8
    model = make(VOCABULARY, dropout_rate=0.2, **options)
    return model, answering(model, training=True), pair_batches()


def build(name, groups, parameters, *, optimizer="adam", precision="float32", **options):
    """Returns (model, step, the shards of each batch)."""
    keras.utils.set_random_seed(3)
    towers.steps.set_precision(precision)
    stage_of = dense_stage if name == "dense" else None
    placement = towers.Placement(groups, parameters, stage_of=stage_of)
    with placement.scope():
        model, tower_fn, batches = task_of(name)
        own = towers.optimizers.build_optimizer(optimizer, 0.01)
        if precision == "float16":
            options["loss_scale"] = towers.steps.LossScale()
    dataset = helpers.dataset_of(batches)
    options = towers.StepOptions(**{"probe": False, **options})
    step = towers.build_train_step(tower_fn, model, own, placement, dataset, options)
    return model, step, list(towers.engine.split(dataset, len(groups)))


def train(name, groups, parameters, **options):
    """Returns the values of all variables, of the optimizer and of the last step."""
    _, step, shards = build(name, groups, parameters, **options)
    for number, shard in enumerate(shards, 1):
        results = step(shard, number)
    step.check_copies()
    numbers = [results.loss, results.gradient_norm, results.towers.gradient_norm]
    values = [*step.groups()["variables"], *step.groups()["optimizer"]]
    return [tf.convert_to_tensor(one).numpy() for one in [*values, *numbers]]


@functools.cache
def one_device_each(name, **options):
    """The towers of one device each, with which those of several agree."""
    return train(name, [group[0] for group in PAIRS], "cpu", **options)


def assert_same_bits(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("parameters", ["cpu", pytest.param("tower0", marks=SLOW), "replicated"])
def test_two_devices_a_tower_give_the_bits_of_one(parameters):
    assert_same_bits(train("dense", PAIRS, parameters), one_device_each("dense"))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *(pytest.param("lstm", policy, marks=SLOW) for policy in ("cpu", "tower0", "replicated")),
        *(pytest.param(name, "replicated", marks=SLOW) for name in (*LANGUAGE, *ANSWERING)),
    ],
)
def test_split_text_models_give_the_bits_of_one_device(name, parameters):
    assert_same_bits(train(name, PAIRS, parameters), one_device_each(name))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"accumulate": 4}, id="accumulate", marks=SLOW),
        pytest.param({"clip_norm": 0.1, "optimizer": "lazy_adam"}, id="clipped", marks=SLOW),
        pytest.param({"precision": "float16"}, id="float16", marks=SLOW),
        pytest.param({"precision": "bfloat16"}, id="bfloat16", marks=SLOW),
        pytest.param({"batch_norm": "first"}, id="first", marks=SLOW),
    ],
)
def test_the_bits_agree_in_every_way_to_train(options):
    assert_same_bits(
        train("dense", PAIRS, "replicated", **options), one_device_each("dense", **options)
    )


@pytest.mark.parametrize("seen", ["one", pytest.param("several", marks=SLOW)])
def test_a_checkpoint_of_the_one_is_continued_by_the_other(seen, tmp_path):
    singles = [group[0] for group in PAIRS]
    groups = [singles, PAIRS] if seen == "one" else [PAIRS, singles]
    folder = towers.checkpoints.CheckpointFolder(tmp_path)
    _, first, shards = build("dense", groups[0], "replicated")
    first(shards[0], 1)
    folder.save(1, first.groups(), {})
    _, second, _ = build("dense", groups[1], "replicated")
    towers.checkpoints.restore(folder.latest(), second.groups())
    for number, shard in enumerate(shards[1:], 2):
        second(shard, number)
    values = [
        tf.convert_to_tensor(one).numpy() for group in second.groups().values() for one in group
    ]
    assert_same_bits(values, one_device_each("dense")[: len(values)])


@SLOW
@pytest.mark.parametrize("parameters", ["cpu", "replicated"])
def test_a_carried_state_goes_on_in_split_layers(parameters):
    def last_state(groups):
        keras.utils.set_random_seed(3)
        placement = towers.Placement(groups, parameters)
        with placement.scope():
            model, own = LANGUAGE["lstm"](), towers.optimizers.build_optimizer("adam", 0.01)
        tokens = np.random.default_rng(0).integers(1, VOCABULARY, (3, 2, 6, 5)).astype("int32")
        batches = [(one, other, np.zeros(6, bool)) for one, other in tokens]
        carried = towers.Carried(model.state_specs(), 6)
        tower_fn = language_model.streams(model, training=True)
        options = towers.StepOptions(carried=carried, probe=False)
        dataset = helpers.dataset_of(batches)
        step = towers.build_train_step(tower_fn, model, own, placement, dataset, options)
        for number, shards in enumerate(towers.engine.split(dataset, 2), 1):
            step(shards, number)
        return [value_of(one) for one in step.groups()["carried"]] + helpers.weights_of(model)

    assert_same_bits(last_state(PAIRS), last_state([group[0] for group in PAIRS]))


@pytest.mark.parametrize("parameters", ["cpu", pytest.param("replicated", marks=SLOW)])
def test_a_stage_may_have_frozen_layers_alone(parameters):
    def weights(groups):
        keras.utils.set_random_seed(3)
        placement = towers.Placement(groups, parameters, stage_of=lambda layer: int(layer is last))
        with placement.scope():
            model = helpers.dense_model()
        model.layers[1].trainable, last = False, model.layers[2]
        dataset, sgd = helpers.dataset_of(helpers.dense_batches([4])), keras.optimizers.SGD(0.5)
        options = towers.StepOptions(probe=False)
        step = towers.build_train_step(
            helpers.classify(model), model, sgd, placement, dataset, options
        )
        step(*towers.engine.split(dataset, 2), 1)
        return helpers.weights_of(model)

    assert_same_bits(weights(PAIRS), weights([group[0] for group in PAIRS]))


def test_towers_of_several_devices_evaluate_as_one():
    results = []
    for groups in (PAIRS, [group[0] for group in PAIRS]):
        keras.utils.set_random_seed(3)
        policy = "tower0" if groups is PAIRS else "cpu"
        placement = towers.Placement(groups, policy, stage_of=dense_stage)
        with placement.scope():
            model, _, batches = task_of("dense")
        dataset = helpers.dataset_of(batches)
        step = towers.build_evaluation_step(helpers.classify(model), model, placement, dataset)
        results.append(towers.evaluate_step(step, dataset))
    assert results[0] == results[1]


def placed(step, shards):
    """Returns the ops of a step that ran, each with its device."""
    with record_placed_nodes() as nodes:
        step(shards, 1)
    return nodes


@pytest.mark.slow
def test_every_op_of_a_stage_runs_on_its_device_forward_and_backward():
    _, step, (shards, *_) = build("dense", PAIRS, "replicated", optimizer="momentum")
    devices = collections.defaultdict(set)
    for node, device in placed(step, shards):
        for tower in range(2):
            if f"tower_{tower}/" in node.name and COMPUTES.search(node.op):
                stage = "stage_1" in node.name
                backward = node.name.startswith("gradient_tape")
                devices[tower, stage, backward].add(device)
    expected = {
        (tower, stage, backward): {short_device(PAIRS[tower][stage])}
        for tower in (0, 1)
        for stage in (False, True)
        for backward in (False, True)
    }
    assert devices == expected


COMPUTES = re.compile("MatMul|Tanh|BiasAdd|Rsqrt|Softmax")  # With those that oneDNN has fused.


@pytest.mark.parametrize(
    ("parameters", "homes"),
    [
        pytest.param("cpu", {False: {"CPU:0"}, True: {"CPU:0"}}, marks=SLOW),
        pytest.param("tower0", {False: {"CPU:1"}, True: {"CPU:2"}}, marks=SLOW),
        ("replicated", {False: {"CPU:1", "CPU:3"}, True: {"CPU:2", "CPU:4"}}),
    ],
)
def test_variables_slots_and_updates_are_on_the_device_of_their_stage(parameters, homes):
    _, step, (shards, *_) = build("dense", PAIRS, parameters, optimizer="adam")
    found = collections.defaultdict(set)
    first, *_ = copies = step.update.copies._copies
    for copy in copies:
        for named, variable in zip(first.all, copy.all, strict=True):
            if named.path not in ("adam/iteration", "adam/learning_rate"):
                found["upper" in named.path].add(short_device(variable.value.device))
    assert found == homes
    updates = {device for node, device in placed(step, shards) if node.op == "ResourceApplyAdam"}
    assert updates == homes[False] | homes[True]
