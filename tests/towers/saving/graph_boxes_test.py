"""What TensorBoard shows of a step is the graph that runs, with a box for each tower."""

import functools

import keras
import tensorflow as tf

import towers
from tests import helpers
from towers.saving.graph_boxes import box_graph
from towers.saving.summaries import SummaryWriters

MOST_BOXES = 14  # With one more, TensorBoard moves boxes with many connections aside.


@functools.cache
def recurrent_graph():
    """The graph of a step on two towers with a model whose loops make functions."""
    embedding = keras.layers.Embedding(helpers.VOCABULARY_SIZE, 4)
    model = helpers.recurrent_model(embedding)
    return graph_of(model, helpers.tag(model), helpers.token_batches([8]), 2)


def graph_of(model, tower_fn, batches, num_towers):
    optimizer = keras.optimizers.Adam(0.1, global_clipnorm=1.0)
    return helpers.build_step(tower_fn, model, optimizer, batches, num_towers)[0].graph


def test_each_tower_is_a_box_with_its_backward_pass_inside():
    graph = recurrent_graph()
    definition = box_graph(graph)
    names = [node.name for node in definition.node]
    boxes = {name.partition("/")[0] for name in names}
    assert {"inputs", "tower_0", "tower_1", "exchange", "average", "update", "results"} == boxes
    for tower in ("tower_0", "tower_1"):
        assert any(name.startswith(f"{tower}/backward/") for name in names)
    before = [operation.name for operation in graph.get_operations()]
    assert any(name.startswith("gradient_tape/") for name in before)
    assert [node.name for node in graph.as_graph_def().node] == before, "what runs is as it was"


def test_eight_towers_stay_in_the_main_graph():
    model = helpers.dense_model()
    graph = graph_of(model, helpers.classify(model), helpers.dense_batches([8]), 8)
    boxes = {node.name.partition("/")[0] for node in box_graph(graph).node}
    assert len(boxes) <= MOST_BOXES and {f"tower_{tower}" for tower in range(8)} <= boxes


def test_operations_and_connections_are_those_of_the_graph():
    graph = recurrent_graph()
    definition = box_graph(graph)
    shown = tf.Graph()
    with shown.as_default():
        tf.import_graph_def(definition, name="")  # Every input is there.
    for node, operation in zip(definition.node, graph.get_operations(), strict=True):
        again = shown.get_operation_by_name(node.name)
        assert again.type == operation.type
        places = [(one.op.type, one.value_index) for one in again.inputs]
        assert places == [(one.op.type, one.value_index) for one in operation.inputs]
        assert len(again.control_inputs) == len(operation.control_inputs)
    names = [one.signature.name for one in definition.library.function]
    assert names and all(name.startswith("functions/") for name in names)
    called = {value.func.name for node in definition.node for value in node.attr.values()} - {""}
    assert called and called <= set(names)


def test_a_graph_with_the_names_of_boxes_is_shown_as_it_is():
    @tf.function
    def double(value):
        with tf.name_scope("results"):
            doubled = tf.identity(value, name="Identity")
        return doubled

    graph = double.get_concrete_function(tf.TensorSpec([])).graph
    assert [node.name for node in box_graph(graph).node] == [
        operation.name for operation in graph.get_operations()
    ]


def test_a_compiled_model_on_eight_towers_stays_in_the_main_graph_with_its_metrics(
    tmp_path, monkeypatch
):
    graphs = []
    monkeypatch.setattr(SummaryWriters, "write_graph", lambda _, graph: graphs.append(graph))
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    inputs, labels = helpers.dense_batches([8])[0]
    towers.fit(model, inputs, labels, towers=8, verbose=0, run_dir=tmp_path)
    boxes = {node.name.partition("/")[0] for node in box_graph(graphs[0]).node}
    assert len(boxes) <= MOST_BOXES and {"metrics", "tower_0", "tower_7"} <= boxes
