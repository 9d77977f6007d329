"""Law 8: one trace for all batches; a tower makes no variable and returns sums."""

import itertools
import os
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from tests.paths import ROOT
from tests.programs import TOWERS, run
from towers.scripts.training.catalogue import restore_recipe


def lookup_model():
    token_ids = keras.Input((None,), dtype="int32")
    rows = helpers.LookupTable(name="table")(token_ids)
    hidden = keras.layers.Dense(4, activation="tanh", name="hidden")(rows)
    return keras.Model(token_ids, keras.layers.Dense(3, name="logits")(hidden))


def counted(tower_fn):
    calls = []

    def counting(batch):
        calls.append(batch)
        return tower_fn(batch)

    return counting, calls


def test_one_trace_takes_every_batch_of_a_pipeline():
    model = lookup_model()
    tower_fn, calls = counted(helpers.tag(model))
    dataset = tf.data.Dataset.from_tensor_slices(helpers.token_batches([19])[0]).batch(8)
    step = helpers.build_step_for(
        tower_fn, model, keras.optimizers.SGD(0.1), dataset, 2, probe=True
    )
    report = []
    trainer = helpers.make_trainer(step, towers.batches_from(dataset), [report.append])
    trainer.train(epochs=2)
    weights = [float(one.results.weight) for one in report]
    assert len(report) == 6 and len(set(weights[:3])) > 1
    # Once to see how the variables are used, once per tower, once to see if it returns sums.
    assert len(calls) == 1 + 2 + 1


def test_tokens_of_any_length_share_a_trace():
    model = lookup_model()
    tower_fn, calls = counted(helpers.tag(model))
    long, short = helpers.token_batches([4, 4])
    short = tuple(array[:, :3] for array in short)
    dataset = tf.data.Dataset.from_generator(
        lambda: iter([long, short]), output_signature=(tf.TensorSpec([None, None], tf.int32),) * 2
    )
    step = helpers.build_step_for(tower_fn, model, keras.optimizers.SGD(0.1), dataset, 1)
    for number, shards in enumerate(towers.engine.split(dataset, 1), 1):
        step(shards, number)
    assert len(calls) == 1 + 1


@pytest.mark.slow
@pytest.mark.parametrize("num_towers", [1, 2])
def test_compiled_towers_equal_uncompiled_ones(num_towers):
    trained = []
    for compiled in (False, True):
        keras.utils.set_random_seed(3)
        model = lookup_model()
        optimizer = keras.optimizers.Adam(0.01)
        weights, _ = helpers.train_on_towers(
            helpers.tag(model),
            model,
            optimizer,
            helpers.token_batches([8, 7]),
            num_towers,
            compiled=compiled,
        )
        trained.append(weights)
    helpers.assert_same_weights(*trained)


@pytest.mark.slow
def test_one_compilation_per_tower_and_shard_size_and_the_same_weights(tmp_path):
    """Six steps whose shards have 4, 3 or 2 rows; XLA writes a file for each program."""
    script = """
        import sys, keras, numpy as np, tensorflow as tf
        parts = [tf.config.LogicalDeviceConfiguration()] * 3
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, parts)
        from tests import helpers
        keras.utils.set_random_seed(3)
        model = helpers.dense_model()
        batches = helpers.dense_batches([8, 8, 7, 8, 8, 5])
        optimizer = keras.optimizers.Adam(0.01)
        weights, _ = helpers.train_on_towers(
            helpers.classify(model), model, optimizer, batches, 2, compiled=True
        )
        np.savez(sys.argv[1], *weights)
    """
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "weights.npz")],
        check=True,
        cwd=ROOT,
        env=environment,
        capture_output=True,
    )
    programs = list(tmp_path.glob("*before_optimizations.txt"))
    # Tower 0 sees 4 and 3 rows (7 rows are 4 + 3, 5 are 3 + 2), tower 1 sees 4, 3 and 2.
    assert len(programs) == 5
    keras.utils.set_random_seed(3)
    model, batches = helpers.dense_model(), helpers.dense_batches([8, 8, 7, 8, 8, 5])
    optimizer = keras.optimizers.Adam(0.01)
    expected, _ = helpers.train_plainly(helpers.classify(model), model, optimizer, batches)
    with np.load(tmp_path / "weights.npz") as actual:
        helpers.assert_same_weights(list(actual.values()), expected)


@pytest.mark.slow
def test_a_chatbot_is_compiled_once_for_each_tower_and_shape(tmp_path):
    """Two epochs of the command line, whose first has every shape."""
    words = np.random.default_rng(0).integers(1, 10, (300, 2))
    corpus = tmp_path / "corpus.tsv"
    lines = [" ".join(["a"] * number) + "\t" + " ".join(["b"] * size) for number, size in words]
    corpus.write_text("".join(f"{line}\n" for line in lines))
    fields = ["embedding_size=8", "hidden_size=8", "held_out=0.1", "exam_questions=1"]
    fields += ["batch_tokens=200", "language=en"]
    command = ["train", "chatbot", "--data", corpus, "--xla", "--towers", "2", "--epochs", "2"]
    command += [
        "--run-dir",
        tmp_path / "run",
        *itertools.chain(*(("--set", one) for one in fields)),
    ]
    dumped = tmp_path / "programs"
    flags = f"--xla_dump_to={dumped} --xla_dump_hlo_as_text"
    run([*TOWERS, *command], env={**os.environ, "XLA_FLAGS": flags})
    recipe = restore_recipe("chatbot", {}, [*fields, "fixed_shapes=true"])
    shapes = np.unique(recipe.make_data(recipe.fields, [corpus], 0).train.layout.shapes, axis=0)
    assert 4 <= len(shapes) <= 16
    assert len(list(dumped.glob("*before_optimizations.txt"))) == 2 * len(shapes)


def build(tower_fn, model, num_towers=2):
    optimizer = keras.optimizers.SGD(0.1)
    step, (shards,) = helpers.build_step(
        tower_fn, model, optimizer, helpers.dense_batches([4]), num_towers
    )
    return step(shards, 1)


def spoiled(spoil):
    """A model and its tower function, with `spoil(model, inputs)` added to the inputs."""
    model = helpers.dense_model()

    def tower_fn(batch):
        inputs, labels = batch
        return helpers.classify(model)((inputs + spoil(model, inputs), labels))

    return tower_fn, model


def make_tf_variable(model, inputs):
    return tf.Variable(1.0, name="mine")


def make_layer(model, inputs):
    return keras.layers.Dense(5, name="fresh")(inputs)


@pytest.mark.parametrize(
    "spoil, message",
    [
        (make_tf_variable, r"Every tower would create the variable 'mine'"),
        (make_layer, r"Every tower would create the variable 'kernel'"),
    ],
)
def test_a_tower_makes_no_variable(spoil, message):
    tower_fn, model = spoiled(spoil)
    with pytest.raises(RuntimeError, match=message):
        build(tower_fn, model)


def test_a_variable_left_out_is_named():
    model = helpers.dense_model()
    message = r"Tower 0 uses the variable 'logits/kernel' of shape \(8, 3\), which is not one of"
    with pytest.raises(RuntimeError, match=message):
        build(helpers.classify(model), model.trainable_variables[:2])


def test_a_trainable_variable_is_not_assigned_by_a_tower():
    def double(model, inputs):
        bias = model.trainable_variables[1]
        bias.assign(bias + tf.reduce_mean(inputs))
        return 0.0

    tower_fn, model = spoiled(double)
    with pytest.raises(RuntimeError, match="Tower 0 assigns the trainable variable 'hidden/bias'"):
        build(tower_fn, model)


@pytest.mark.parametrize(
    "results, message",
    [
        (None, r"returns \(loss_sum, weight, metrics\).*Received None"),
        (lambda loss: loss, r"returns \(loss_sum, weight, metrics\)"),
        (lambda loss: (loss, 4.0), r"returns \(loss_sum, weight, metrics\)"),
        (lambda loss: (tf.stack([loss]), 4.0, {}), r"loss of shape \(1,\).*use tf\.reduce_sum"),
        (lambda loss: (tf.cast(loss, tf.int32), 4, {}), r"floating-point scalar.*int32"),
        (lambda loss: (loss, tf.ones(4), {}), r"a weight of shape \(4,\)"),
        (lambda loss: (loss, 4.0, {"hits": tf.ones(4)}), r"Received 'hits' with shapes \[\(4,\)\]"),
        (lambda loss: (loss, 4.0, {"hits": (1, 2, 3)}), r"a pair of scalars \(sum, weight\)"),
        (lambda loss: (loss, 4.0, {"hits": (1,)}), r"a pair of scalars \(sum, weight\)"),
        (lambda loss: (loss, 4.0, {"hits": "all"}), r"Received 'hits' with shapes \['all'\]"),
        (lambda loss: (loss, 4.0, {"hits": None}), r"Received 'hits' with shapes \[None\]"),
        (lambda loss: (loss, 4.0, {"hits": 1.0, 2: 1.0}), r"name is a text.*Received 2"),
        (lambda loss: (loss, "rows", {}), r"a weight of shape \(\) and string"),
        (lambda loss: (loss, 4.0, {"loss": 1.0}), r"a metric named 'loss'; rename it"),
        (lambda loss: (loss, 4.0, {"examples": 1.0}), r"a metric named 'examples'; rename"),
    ],
)
def test_wrong_results_of_a_tower_function_are_explained(results, message):
    model = helpers.dense_model()

    def tower_fn(batch):
        loss, _, _ = helpers.classify(model)(batch)
        return results(loss) if results else None

    with pytest.raises(ValueError, match=message):
        build(tower_fn, model, num_towers=1)


class Unbuilt(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(4)
        self.dropout = keras.layers.Dropout(0.5)
        self.logits = keras.layers.Dense(3)

    def call(self, inputs, training=False):
        return self.logits(self.dropout(self.hidden(inputs), training=training))


def test_an_unbuilt_model_is_built_on_the_parameter_device_before_any_tower():
    model = Unbuilt()
    tower_fn, calls = counted(helpers.classify(model, training=True))
    results = build(tower_fn, model)
    assert np.isfinite(results.loss)
    assert len(model.trainable_variables) == 4
    assert {variable.value.device[-5:] for variable in model.trainable_variables} == {"CPU:0"}
    # TensorFlow traces a function that makes variables twice.
    assert len(calls) == 2 + 2


def test_a_tf_function_within_a_tower_trains_as_in_a_plain_loop():
    """Its code runs in each tower: a trace would keep what the first one captured."""
    trained = []
    for train in (helpers.train_plainly, helpers.train_on_towers):
        keras.utils.set_random_seed(3)
        model = helpers.dense_model()
        logits = tf.function(lambda inputs, model=model: model(inputs))

        def tower_fn(batch, logits=logits):
            inputs, labels = batch
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits(inputs))
            return tf.reduce_sum(losses), tf.cast(tf.size(labels), tf.float32), {}

        options = {} if train is helpers.train_plainly else {"num_towers": 2}
        batches, optimizer = helpers.dense_batches([5, 4]), keras.optimizers.SGD(0.5)
        trained.append(train(tower_fn, model, optimizer, batches, **options)[0])
    helpers.assert_same_weights(*trained)


def test_branches_and_loops_of_a_tower_train_as_in_a_plain_loop():
    """A branch holds variables in a graph of its own; a table is no table there."""
    trained = []
    for train in (helpers.train_plainly, helpers.train_on_towers):
        keras.utils.set_random_seed(3)
        model = lookup_model()

        def tower_fn(batch, model=model):
            token_ids, labels = batch
            logits = tf.cond(
                tf.size(token_ids) > 0, lambda: model(token_ids), lambda: 2 * model(token_ids)
            )
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            return tf.reduce_sum(losses), tf.cast(tf.size(labels), tf.float32), {}

        options = {} if train is helpers.train_plainly else {"num_towers": 2}
        optimizer = keras.optimizers.SGD(0.5)
        weights, _ = train(tower_fn, model, optimizer, helpers.token_batches([5, 4]), **options)
        trained.append(weights)
    helpers.assert_same_weights(*trained)


def test_a_variable_without_gradient_warns_and_rests():
    model = helpers.dense_model()
    spare = keras.Variable(np.ones(3, "float32"), name="spare")
    with pytest.warns(UserWarning, match="The loss does not depend on spare: they stay"):
        build(helpers.classify(model), [*model.variables, spare])
    np.testing.assert_array_equal(spare.numpy(), np.ones(3))


def test_a_loss_that_depends_on_no_variable_is_refused():
    def tower_fn(batch):
        return tf.reduce_sum(batch[0]), 4.0, {}

    with pytest.raises(ValueError, match=r"depends on none.*hidden/kernel"):
        build(tower_fn, helpers.dense_model())


def test_nothing_to_train_is_refused():
    model = helpers.dense_model()
    model.trainable = False
    with pytest.raises(ValueError, match=r"nothing to train.*logits/bias"):
        build(helpers.classify(model), model)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"devices": "/CPU:1"}, r"a sequence of device names.*'/CPU:1'"),
        ({"devices": []}, r"a sequence of device names"),
        ({"clip_norm": 0.0}, r"clip_norm must be above 0.*0\.0"),
        ({"clip_norm": True}, r"clip_norm must be above 0 and finite. Received True"),
        ({"clip_norm": float("nan")}, r"clip_norm must be above 0.*nan"),
        ({"clip_norm": float("inf")}, r"clip_norm must be above 0 and finite.*inf"),
        ({"seed": 1.5}, r"seed must be a whole number of 64 bits. Received 1.5"),
        ({"seed": 2**63}, r"seed must be a whole number of 64 bits"),
        ({"compiled": "yes"}, r"compiled must be True or False. Received 'yes'"),
        ({"loss_scale": 1024.0}, r"loss_scale must be a LossScale, or None. Received 1024.0"),
        ({"carried": tf.TensorSpec([3])}, r"carried must be a Carried, or None. Received Tensor"),
        ({"accumulate": 0}, r"accumulate must be .* at least 1.*0"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_traced(change, message):
    model = helpers.dense_model()
    tower_fn, calls = counted(helpers.classify(model))
    dataset = helpers.dataset_of(helpers.dense_batches([4]))
    options = {"devices": helpers.tower_devices(2), **change}
    with pytest.raises(ValueError, match=message):
        placement = towers.Placement(options.pop("devices"), options.pop("parameters", "auto"))
        towers.build_train_step(
            tower_fn, model, keras.optimizers.SGD(0.1), placement, dataset,
            towers.StepOptions(**options),
        )  # fmt: skip
    assert calls == []
