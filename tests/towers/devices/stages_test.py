"""Which layer, variable and op belongs to which of a tower's devices, and what is refused."""

import contextlib
import threading

import keras
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.devices.op_devices import short_device
from towers.devices.stages import (
    Stages,
    blocks_of,
    choose_device,
    cut_evenly,
    labels,
    on_devices,
    stage_in,
)

DEVICES = ["/CPU:1", "/CPU:2"]
PAIRS = [DEVICES, ["/CPU:3", "/CPU:4"]]


def network():
    """Two blocks of layers, one of them in a model of its own, and an output."""
    inner = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(4, name="a"), keras.layers.Dense(4, name="b")],
        name="inner",
    )
    inputs = keras.Input((4,))
    return keras.Model(inputs, keras.layers.Dense(3, name="out")(inner(inputs)), name="network")


def stages_of(names, count=2):
    """Returns {variable's path: stage} where layers have the stages of their names."""
    model = network()
    stages = Stages(model, count, lambda layer: names.get(layer.name))
    names = {id(one): "/".join(one.path.split("/")[-2:]) for one in model.variables}
    return {names[id(one)]: stages.of(one) for one in model.variables}


def test_a_layer_takes_the_layers_in_it_along():
    found = stages_of({"inner": 1, "a": 0, "out": 0})
    assert found["a/kernel"] == found["b/bias"] == 1 and found["out/kernel"] == 0


def test_of_a_layer_without_a_stage_those_in_it_are_asked():
    found = stages_of({"b": 1})
    assert found["b/kernel"] == 1 and found["a/kernel"] == found["out/kernel"] == 0


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"out": 2}, r"one of the tower's 2 devices, 0 to 1, or None\. Received 2 .* 'out'"),
        ({"out": True}, r"0 to 1, or None\. Received True"),
        ({}, r"needs layers with variables\. Received a stage_of that gives none to 1; give it"),
    ],
)
def test_a_wrong_stage_is_refused(names, message):
    with pytest.raises(ValueError, match=message):
        stages_of(names)


def test_stages_by_size_keep_the_order_and_the_blocks():
    model = network()
    inner, out = model.layers[1:]
    stage_of = towers.steps.stages_by_size([inner.layers, [out]], 2)
    assert [stage_of(layer) for layer in (*inner.layers, out, model)] == [0, 0, 1, None]
    with pytest.raises(ValueError, match="consists of 2 blocks with parameters, which 3 devices"):
        towers.steps.stages_by_size([inner.layers, [out]], 3)


def test_a_network_in_a_network_is_taken_apart():
    model = network()
    assert [[one.name for one in block] for block in blocks_of(model)[1:]] == [
        ["a"],
        ["b"],
        ["out"],
    ]
    stages = Stages(model, 2)
    assert [stages.of(one) for one in (*model.layers[1].layers, model.layers[2])] == [0, 1, 1]


def test_a_model_stands_for_the_variables_of_its_own():
    class Own(keras.Model):
        def build(self, shape=None):
            self.dense = keras.layers.Dense(2)
            self.dense.build((None, 3))
            self.kernel = self.add_weight(shape=(2, 90), name="kernel")
            self.built = True

    model = Own()
    model.build()
    stages = Stages(model, 2, towers.steps.stages_by_size([[model.dense], [model]], 2))
    assert [stages.of(one) for one in (model.dense.kernel, model.kernel)] == [0, 1]


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_a_cut_of_many_blocks_is_even(count):
    parts = cut_evenly([1] * 200, count)
    assert [len(part) for part in parts] == [200 // count] * count
    assert [place for part in parts for place in part] == list(range(200))


def test_other_threads_call_layers_as_ever_and_keras_gets_its_method_back():
    model, plain, names = network(), keras.layers.Layer.__call__, []
    stages = Stages(model, 2, lambda layer: {"out": 1}.get(layer.name))

    def call():
        traced = tf.function(lambda inputs: model(inputs), autograph=False)
        graph = traced.get_concrete_function(tf.TensorSpec([1, 4])).graph
        names.extend(op.name for op in graph.get_operations())

    with labels(stages):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert names and not any(map(stage_in, names))
    assert keras.layers.Layer.__call__ is plain


def build(placement, model, **options):
    batches = helpers.dataset_of(helpers.dense_batches([4]))
    return towers.build_train_step(
        helpers.classify(model), model, keras.optimizers.SGD(), placement, batches, **options
    )


def upper(layer):
    return int(layer.name == "logits")


def test_a_step_moves_variables_to_the_devices_of_their_stages_once():
    model, placement = helpers.dense_model(), towers.Placement(PAIRS, "replicated", stage_of=upper)
    build(placement, model)
    devices = {one.path: short_device(one.value.device) for one in model.variables}
    assert devices["hidden/kernel"] == "CPU:1" and devices["logits/kernel"] == "CPU:2"
    before = [one.value for one in model.variables]
    placement.place(model)
    assert all(one.value is other for one, other in zip(model.variables, before, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"options": towers.StepOptions(compiled=True)}, "compiled=True needs towers of one dev"),
        ({"processes": helpers.OneOfTwo()}, r"in 2 processes needs .*\[\['/CPU:1', '/CPU:2'\]"),
    ],
)
def test_what_towers_of_several_devices_cannot_do_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build(towers.Placement(PAIRS, "cpu", stage_of=upper), helpers.dense_model(), **options)


def test_asynchronous_towers_have_one_device():
    batches = helpers.dataset_of(helpers.dense_batches([4]))
    model = helpers.dense_model()
    placement = towers.Placement(PAIRS, "cpu", stage_of=upper)
    with pytest.raises(ValueError, match="An asynchronous step needs towers of one device"):
        towers.steps.build_async_step(
            helpers.classify(model), model, keras.optimizers.SGD(), placement, batches
        )


def test_a_placement_needs_the_model():
    with pytest.raises(ValueError, match=r"need the model itself as `variables`.*Received list"):
        towers.Placement(PAIRS, "cpu").place(helpers.dense_model().variables)


@pytest.mark.parametrize(
    "devices", [[["/CPU:1", "/CPU:2"], ["/CPU:3"]], [["/CPU:1", "/CPU:1"]], [[]], ["/CPU:1", []]]
)
def test_towers_of_different_sizes_are_refused(devices):
    with pytest.raises(ValueError, match="Received"):
        towers.Placement(devices)


def test_the_first_towers_keep_their_devices():
    placement = towers.Placement(PAIRS, "cpu", stage_of=upper)
    assert placement.devices == ("/CPU:1", "/CPU:3") and placement.num_stages == 2
    assert placement.first(1).groups == (("/CPU:1", "/CPU:2"),)
    assert placement.first(1).stage_of is upper


def test_an_op_of_a_branch_runs_beside_what_the_branch_takes_from_around_it():
    """As the update of a gradient: a scalar travels, not the gradient."""
    found = {}
    with tf.device("/CPU:2"):
        variable = tf.Variable(tf.zeros([8]))

    @tf.function(autograph=False)
    def update(gradient):
        with tf.device("/CPU:2"):
            gradient = gradient * 2
        with tf.device("/CPU:1"):
            factor = tf.reduce_sum(gradient)

        def assign():
            with on_devices(DEVICES):
                found["product"] = factor * gradient
                found["double"] = factor * 2
                found["read"] = variable + tf.zeros([8])
                variable.assign(found["product"])

        with tf.device("/CPU:1"):
            tf.cond(factor > 0, assign, lambda: None)

    update.get_concrete_function(tf.TensorSpec([8]))
    devices = {name: tensor.device for name, tensor in found.items()}
    assert devices == {
        "product": "/device:CPU:2", "double": "/device:CPU:1", "read": "/device:CPU:2"
    }  # fmt: skip


def test_sums_without_a_label_run_beside_their_largest_part():
    with tf.Graph().as_default() as graph:
        choose = choose_device(DEVICES)
        with graph.device(choose), tf.name_scope("tower_0"):
            with tf.name_scope("stage_1"):
                large = tf.ones([100]) * 2
            small = tf.ones([]) * 3
            total = small + large
            with tf.name_scope("gradient_tape/tower_0/stage_1/dense"):
                backward = tf.ones([100]) * 4
    devices = [one.device for one in (large, small, total, backward)]
    assert devices == ["/device:CPU:2", "/device:CPU:1", "/device:CPU:2", "/device:CPU:2"]


@pytest.mark.parametrize("is_wrong", [False, True])
def test_behind_the_end_of_a_name_scope_is_the_stage_of_the_layer_before(is_wrong):
    layers = [keras.layers.Dense(2, name=name) for name in ("first", "second")]
    model = keras.Sequential([keras.Input((3,)), *layers])
    stages = Stages(model, 2, lambda layer: {"first": 0, "second": 1}.get(layer.name))

    @tf.function
    def run(x):
        with contextlib.suppress(KeyError), labels(stages):
            with tf.name_scope("encoder"):
                x = layers[0](x)
            with tf.name_scope("decoder"):
                with tf.name_scope("inner"):
                    x = layers[1](x)
                x = tf.identity(x, "inside")
            with tf.name_scope("loss"):
                x = tf.identity(x, "behind")
                if is_wrong:
                    raise KeyError
        return tf.identity(x, "outside")

    operations = run.get_concrete_function(tf.TensorSpec([4, 3])).graph.get_operations()
    stage_of = {op.name.split("/")[-1]: stage_in(op.name) for op in operations}
    assert (stage_of["inside"], stage_of["behind"], stage_of["outside"]) == (1, 1, None)
