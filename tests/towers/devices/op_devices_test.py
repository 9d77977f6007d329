"""Law 4: where every op runs, read back from the graphs that TensorFlow executed."""

import keras
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import towers
from tests import helpers
from towers.devices.op_devices import format_op_devices, record_op_devices, record_placed_nodes

TOWER_DEVICES = {"tower_0": "CPU:1", "tower_1": "CPU:2"}


def every_kind_of_layer():
    """A table that is looked up, a convolution, an LSTM and a dense layer: 8 variables."""
    token_ids = keras.Input((6,), dtype="int32")
    rows = helpers.LookupTable(name="table")(token_ids)
    image = keras.layers.Reshape((6, 4, 1))(rows)
    features = keras.layers.Conv2D(2, 3, padding="same", name="conv")(image)
    sequence = keras.layers.Reshape((6, 8))(features)
    hidden = keras.layers.LSTM(6, return_sequences=True, name="lstm")(sequence)
    return keras.Model(token_ids, keras.layers.Dense(3, name="logits")(hidden))


class Placed:
    """One step on two towers: the step, its model and every op that ran with its device."""

    def __init__(self):
        self.model = every_kind_of_layer()
        self.step, (shards,) = helpers.build_step(
            helpers.tag(self.model),
            self.model,
            keras.optimizers.Adam(0.1),
            helpers.token_batches([5]),
            2,
        )
        with record_placed_nodes() as nodes:
            self.step(shards, 1)
        self.nodes = [(node.op, node.name, device) for node, device in nodes]

    def devices_of(self, *kinds):
        """Devices of the ops whose type holds one of the words, by tower (None outside)."""
        found = {}
        for op, name, device in self.nodes:
            if any(kind in op for kind in kinds):
                found.setdefault(tower_of(name), set()).add(device)
        return found


def tower_of(name):
    parts = name.removeprefix("gradient_tape/").split("/")
    return parts[0] if parts[0].startswith("tower_") else None


@pytest.fixture(scope="module")
def placed():
    return Placed()


def test_variables_are_read_and_assigned_on_the_parameter_device(placed):
    for kind in ("ReadVariableOp", "Assign", "ResourceGather"):
        devices = placed.devices_of(kind)
        assert devices
        assert all(where == {"CPU:0"} for where in devices.values()), kind


def test_variables_and_slots_live_on_the_parameter_device(placed):
    slots = placed.step.update.copies.optimizer.variables
    assert len(slots) == 2 + 2 * len(placed.model.trainable_variables)
    for variable in [*placed.step.update.copies.shared.all, *slots]:
        assert variable.value.device.endswith("CPU:0"), variable.path


@pytest.mark.parametrize("kind", ["MatMul", "Conv2D", "BiasAdd", "Sigmoid", "TanhGrad"])
def test_layers_run_forward_and_backward_on_their_own_tower(placed, kind):
    devices = placed.devices_of(kind)
    assert devices == {tower: {device} for tower, device in TOWER_DEVICES.items()}


def test_loop_bodies_run_on_their_own_tower(placed):
    loops = placed.devices_of("TensorListSetItem", "TensorListPushBack", "TensorListPopBack")
    assert loops == {tower: {device} for tower, device in TOWER_DEVICES.items()}


def test_every_norm_of_a_tower_is_computed_on_its_device(placed):
    counts = {}
    for op, _, device in placed.nodes:
        if op == "L2Loss":
            counts[device] = counts.get(device, 0) + 1
    assert counts == dict.fromkeys(("CPU:0", "CPU:1", "CPU:2"), 8)


def test_no_variable_is_read_in_a_loop_body(placed):
    functions = placed.step.graph.as_graph_def().library.function
    bodies = [function for function in functions if "while" in function.signature.name]
    assert bodies
    for body in bodies:
        assert "ReadVariableOp" not in {node.op for node in body.node_def}


def test_each_variable_is_read_once_for_all_towers(placed):
    nodes = placed.step.graph.as_graph_def().node
    reads = [node for node in nodes if node.op == "ReadVariableOp"]
    assert not any(tower_of(node.name) for node in reads)
    handles = [node.input[0] for node in reads if node.name.startswith("inputs/")]
    num_read = len(placed.model.trainable_variables) - 1  # All but the table.
    assert len(handles) == len(set(handles)) == num_read
    for tower in TOWER_DEVICES:
        values = [node for node in nodes if node.name.startswith(f"{tower}/parameters/")]
        assert [node.op for node in values] == ["Identity"] * num_read


def test_rows_are_gathered_once_per_tower(placed):
    gathers = [name for op, name, _ in placed.nodes if op == "ResourceGather"]
    assert sorted(map(tower_of, gathers)) == ["tower_0", "tower_1"]


def test_scopes_are_named_after_the_towers(placed):
    scopes = {node.name.split("/")[0] for node in placed.step.graph.as_graph_def().node}
    assert {"tower_0", "tower_1", "gradient_tape", "average", "update", "results"} <= scopes
    backward = {
        node.name.split("/")[1]
        for node in placed.step.graph.as_graph_def().node
        if node.name.startswith("gradient_tape/")
    }
    assert backward == set(TOWER_DEVICES)


@pytest.mark.parametrize(
    "policy, num_towers, device",
    [("cpu", 2, "CPU:0"), ("tower0", 2, "CPU:1"), ("auto", 1, "CPU:1"), ("cpu", 1, "CPU:0")],
)
def test_parameters_live_where_the_policy_says(policy, num_towers, device):
    class Unbuilt(keras.Model):
        def __init__(self):
            super().__init__()
            self.logits = keras.layers.Dense(3)

        def call(self, inputs, training=False):
            return self.logits(inputs)

    model = Unbuilt()
    step, (shards,) = helpers.build_step(
        helpers.classify(model),
        model,
        keras.optimizers.SGD(0.1, momentum=0.9),
        helpers.dense_batches([4]),
        num_towers,
        parameters=policy,
    )
    with record_op_devices() as placement:
        step(shards, 1)
    # The first two are iterations and learning rate.
    slots = step.update.copies.optimizer.variables[2:]
    assert len(slots) == len(model.variables) == 2
    assert {v.value.device[-5:] for v in [*model.variables, *slots]} == {device}
    assigns = {where for op, where in placement if op.startswith(("Assign", "ResourceApply"))}
    assert device in assigns
    matmuls = {where for op, where in placement if "MatMul" in op}
    assert matmuls == {f"CPU:{tower + 1}" for tower in range(num_towers)}


@pytest.mark.parametrize(
    "policy, devices, expected",
    [
        ("auto", ["/GPU:0", "/GPU:1"], "/CPU:0"),
        ("auto", ["/GPU:3"], "/GPU:3"),
        ("cpu", ["/GPU:0"], "/CPU:0"),
        ("tower0", ["/GPU:1", "/GPU:0"], "/GPU:1"),
        ("replicated", ["/CPU:2", "/CPU:1"], "/CPU:2"),
    ],
)
def test_parameter_device_of_each_policy(policy, devices, expected):
    assert towers.Placement(devices, policy).device == expected


def test_unknown_policy_is_refused():
    with pytest.raises(ValueError, match=r"one of auto, cpu, tower0, replicated\. Received 'gpu'"):
        towers.Placement(["/CPU:0"], "gpu")


def test_recorded_placement_counts_the_ops_of_each_device():
    @tf.function
    def add(values):
        with tf.device("/CPU:3"):
            return values @ values

    with record_op_devices() as placement:
        add(tf.ones((2, 2)))
    (line,) = [line for line in format_op_devices(placement) if line.startswith("CPU:3: ")]
    assert "MatMul 1" in line


def test_no_graph_is_kept_of_functions_that_run_later():
    with record_op_devices() as placement:
        tf.function(lambda values: values + 1.0)(tf.ones(2))
    assert placement
    tf.function(lambda values: values + 2.0)(tf.ones(2))
    assert not context.export_run_metadata().function_graphs
