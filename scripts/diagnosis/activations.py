"""The memory of a tower's activations, counted in the graph of its forward and backward pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

import towers
from towers.scripts.training.session import Session

VIEWS = ("Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient")  # No memory of their own.
NOT_MADE = ("Placeholder", "Const", "ReadVariableOp")  # Counted as data, weights and gradients.


class Activations(NamedTuple):
    """The memory that a tower's pass takes beside its variables and their gradients.

    Attributes:
        peak: bytes of the largest moment, with ops one after the other.
        rows: of the batch that was counted.
        uncounted: how many tensors have no known size, such as what a loop keeps of each pass.
    """

    peak: int
    rows: int
    uncounted: int


def count_activations(session: Session, num_towers: int) -> Activations | None:
    """Returns what one tower's rows of the first batch take; None for a state that is carried."""
    recipe = session.recipe
    if recipe.make_carried is not None and recipe.make_carried(recipe.fields, session.model):
        return None
    batch = next(towers.engine.iterator_of(session.data.train(0, 0)))
    rows = -(-int(tf.nest.flatten(batch)[0].shape[0]) // num_towers)
    specs = tf.nest.map_structure(
        lambda one: tf.TensorSpec([rows, *one.shape[1:]], one.dtype), batch
    )
    tower_fn = recipe.make_tower_fn(recipe.fields, session.model, True)
    variables = [one.value for one in session.model.trainable_variables]
    return Activations(rows=rows, **count(lambda own: tower_fn(own)[0], specs, variables))


def count(
    loss_of: Callable[[Any], tf.Tensor], specs: Any, variables: Sequence[tf.Variable]
) -> dict[str, int]:
    """Returns `peak` and `uncounted` of a loss and its gradient for inputs of these specs."""

    def differentiate(inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(inputs)
        return tape.gradient(loss, variables)

    function = tf.function(differentiate, autograph=False)
    graph = function.get_concrete_function(specs).graph
    ops = graph.get_operations()
    results = {source(one).ref() for one in graph.outputs}
    last = {source(one).ref(): number for number, op in enumerate(ops) for one in op.inputs}
    freed: Counter[int] = Counter()
    size = peak = uncounted = 0
    for number, op in enumerate(ops):
        for one in () if op.type in (*VIEWS, *NOT_MADE) else op.outputs:
            if one.ref() not in last or one.ref() in results:
                continue
            num_elements = one.shape.num_elements()
            if num_elements is None or one.dtype in (tf.variant, tf.resource):
                uncounted += 1
                continue
            size += num_elements * one.dtype.size
            freed[last[one.ref()]] += num_elements * one.dtype.size
        peak = max(peak, size)
        size -= freed[number]
    return {"peak": peak, "uncounted": uncounted}


def source(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor that a tensor is a view of, or itself."""
    while tensor.op.type in VIEWS:
        tensor = tensor.op.inputs[0]
    return tensor
