"""One function call across several devices: split the rows, run each part, merge the outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.batches.shards import check_batch_spec, split_batch
from towers.devices.placement import check_devices
from towers.ground.host import HOST
from towers.ground.private_apis import could_possibly_record, stored_value
from towers.other_steps.recompute import gradients_of, is_floating
from towers.step.micro_batches import fold_in, part_of
from towers.step.sums import add_states, merge_state, share_of_state
from towers.step.synchronized import Refusal
from towers.travel.pairs import add_in_pairs
from towers.variables.shared_variables import is_seed
from towers.variables.tower_scope import new_variable_error, no_new_variables

MERGES = ("auto", "sum", "mean", "concatenate")


def parallel(
    function: Callable[..., Any],
    devices: Sequence[str],
    *,
    merge: Any = "auto",
    variables: keras.Model | Sequence[keras.Variable] = (),
    **tensors: Any,
) -> Any:
    """Returns what `function(**tensors)` returns, computed by a tower on each device.

    Each tower gets its rows of every tensor, as `towers.engine.split_batch` cuts them. It works
    eagerly and in a `tf.function`, for inference and under a `tf.GradientTape`; each tower's
    gradients are computed on its device, also those of tensors that the function takes from
    around it. Values that the function assigns to non-trainable Keras variables are merged and
    assigned once: BatchNorm's averages as means weighted by rows, counters by their `aggregation`.

    Args:
        function: takes the tensors by name and uses Keras layers made outside of it.
        devices: one device per tower, in the order of the rows.
        merge: how the towers' outputs are merged: `sum`; `mean`, weighted by the towers' rows;
            `concatenate`, in tower order; `auto`, which sums scalars and concatenates other
            tensors; or a nest of these, one for each output.
        variables: a model or Keras variables that each tower reads only once, however often the
            function uses them. This is faster for layers with a loop, such as an LSTM.
        tensors: by name, tensors or nests of them, all with the same number of rows. If there are
            fewer rows than devices, towers without rows do not contribute.

    Raises:
        ValueError: an argument is wrong, or an output cannot be merged in this way.

    >>> kernel = tf.constant([[2.0]])
    >>> features = tf.constant([[1.0], [2.0], [4.0]])
    >>> def predict(features):
    ...     return {"outputs": features @ kernel, "cost": tf.reduce_sum(features)}
    >>> merged = parallel(predict, ["/CPU:0", "/CPU:0"], features=features)
    >>> merged["outputs"].numpy().ravel().tolist(), float(merged["cost"])
    ([2.0, 4.0, 8.0], 7.0)
    """
    check_devices(devices)
    check_merge(merge)
    tensors = tf.nest.map_structure(tf.convert_to_tensor, tensors)
    check_tensors(tensors)
    with tf.device(HOST), tf.name_scope("split"):
        shards = split_batch(tensors, len(devices))
    listed = list(getattr(variables, "variables", variables))
    apart = Refusal("in towers.steps.parallel") if len(devices) > 1 else contextlib.nullcontext()
    scopes, outputs, captured = [], [], captured_by(function, listed, shards[0].batch)
    for tower, (device, shard) in enumerate(zip(devices, shards, strict=True)):
        with tf.device(device), tf.name_scope(f"tower_{tower}"), apart:
            scopes.append(CallScope(tower, listed))
            outputs.append(run_in(scopes[-1], function, device, (shard.batch, captured)))
    sizes = [shard.size for shard in shards]
    with tf.device(HOST), tf.name_scope("merge"):
        assign_once(scopes, sizes)
        return merge_outputs(outputs, sizes, merge)


class CallScope(keras.StatelessScope):
    """The scope of one tower's call: the values that it reads and assigns for Keras variables.

    Args:
        tower: the tower's number.
        variables: the variables that `read` reads; all others are read at each use.

    Attributes:
        name: the tower's name in messages.
        assigned: the variables that the function assigned.
    """

    def __init__(self, tower: int, variables: Sequence[keras.Variable]):
        super().__init__(collect_losses=True, initialize_variables=False)
        self.name = f"Tower {tower}"
        self.assigned: list[keras.Variable] = []
        self._tower = tower
        self._variables = [variable for variable in variables if not is_seed(variable)]

    def read(self) -> None:
        """Reads each variable once, on the current device."""
        for variable in self._variables:
            self.state_mapping[id(variable)] = tf.convert_to_tensor(variable.value)

    def get_current_value(self, variable: keras.Variable) -> tf.Tensor | None:
        """Returns the variable's value in this call; None if the variable itself is to be read."""
        value = super().get_current_value(variable)
        if value is None and stored_value(variable) is None:  # Keras would take the initial value.
            raise new_variable_error(self.name, variable.path)
        if value is None and is_seed(variable) and self._tower:  # Tower 0 draws as one device.
            value = fold_in(tf.cast(stored_value(variable), tf.int64), self._tower)
            value = tf.cast(value, variable.dtype)
        return value

    def add_update(self, update: tuple[keras.Variable, tf.Tensor]) -> None:
        """Stores a value instead of assigning it."""
        variable, _ = update
        if variable.trainable:
            raise RuntimeError(
                f"{self.name} assigns the trainable variable '{variable.path}'. A tower changes "
                "trainable variables through gradients only; make it `trainable=False`."
            )
        if not any(variable is other for other in self.assigned):
            self.assigned.append(variable)
        super().add_update(update)


def captured_by(
    function: Callable[..., Any], variables: Sequence[keras.Variable], batch: dict[str, Any]
) -> list[tf.Tensor]:
    """Returns the tensors that the function takes from around it and that may have a gradient.

    A trace of its own finds them. Without a tape, eager calls need no gradient and no trace.
    """
    if tf.executing_eagerly() and not could_possibly_record():
        return []
    scope = CallScope(0, variables)

    def call(batch: dict[str, Any]) -> None:
        with scope, no_new_variables(scope.name):
            scope.read()
            function(**batch)

    graph = tf.function(call, autograph=False).get_concrete_function(batch).graph
    return [outer for outer, _ in graph.captures if is_floating(outer)]


def run_in(
    scope: CallScope,
    function: Callable[..., Any],
    device: str,
    tensors: tuple[dict[str, Any], Sequence[tf.Tensor]],
) -> Any:
    """Returns the function's outputs for one shard; their gradients are computed on the device.

    The tensors are those of the shard, and those that the function takes from around it.

    Without this custom gradient, the backward ops would have no device in a graph.
    """

    batch, captured = tensors
    size = len(tf.nest.flatten(batch))

    @tf.custom_gradient
    def run(*inputs: tf.Tensor) -> tuple[Any, Callable[..., Any]]:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(list(filter(is_floating, inputs)))
            with scope, no_new_variables(scope.name):
                scope.read()
                outputs = function(**tf.nest.pack_sequence_as(batch, inputs[:size]))
        outputs = tf.nest.map_structure(tf.convert_to_tensor, outputs)

        def backward(*upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            with tf.device(device):
                return gradients_of(tape, outputs, upstream, inputs, variables)

        return outputs, backward

    return run(*tf.nest.flatten(batch), *captured)


def assign_once(scopes: Sequence[CallScope], sizes: Sequence[tf.Tensor]) -> None:
    """Assigns one value to each variable that the towers assigned; means are weighted by rows."""
    weights = [tf.cast(size, tf.float64) for size in sizes]
    nonempty = [tf.cast(size > 0, tf.float64) for size in sizes]
    parts = [part_of(tower, tower, 0, tf.zeros([], tf.int64)) for tower in range(len(scopes))]
    for variable in scopes[0].assigned:
        before = tf.convert_to_tensor(variable.value)
        values = [scope.state_mapping[id(variable)] for scope in scopes]
        rows = zip(values, parts, weights, nonempty, strict=True)
        shares = [share_of_state(variable, value, before, *row) for value, *row in rows]
        with tf.device(variable.value.device):
            total = add_in_pairs(add_states, shares)
            variable.assign(merge_state(variable, total, tf.add_n(weights), before))


def merge_outputs(outputs: Sequence[Any], sizes: Sequence[tf.Tensor], merge: Any) -> Any:
    """Returns the towers' outputs merged into one nest."""
    return tf.nest.map_structure(
        lambda choice, *parts: merge_parts(choice, parts, sizes),
        choices_for(outputs[0], merge),
        *outputs,
    )


def choices_for(outputs: Any, merge: Any) -> Any:
    """Returns a nest like the outputs, with the way to merge each output."""

    def choose(choice: str, output: tf.Tensor) -> str:
        automatic = "sum" if output.shape.rank == 0 else "concatenate"
        return automatic if choice == "auto" else choice

    def choose_all(choice: str, part: Any) -> Any:
        return tf.nest.map_structure(lambda output: choose(choice, output), part)

    try:
        return keras.tree.map_structure_up_to(merge, choose_all, merge, outputs)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"merge must be one of {', '.join(MERGES)}, or a nest of them that fits the function's "
            f"outputs. Received {merge!r} for {outputs!r}."
        ) from error


def merge_parts(choice: str, parts: Sequence[tf.Tensor], sizes: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns one output merged from the towers'; empty shards do not contribute."""
    check_part(choice, parts[0])
    pairs = list(zip(parts, sizes, strict=True))
    if choice == "concatenate":
        counts = [tf.where(size > 0, tf.shape(part)[0], 0) for part, size in pairs]
        return tf.concat([part[:count] for part, count in zip(parts, counts, strict=True)], axis=0)
    dtype = parts[0].dtype
    if choice == "sum":
        return tf.add_n([part * tf.cast(size > 0, dtype) for part, size in pairs])
    wide = dtype if dtype.is_complex else tf.float64  # In float16 rows times a mean overflow.
    total = tf.add_n([tf.cast(part, wide) * tf.cast(size, wide) for part, size in pairs])
    mean = total / tf.cast(tf.add_n(sizes), wide)
    return tf.cast(mean, dtype) if dtype.is_floating else mean


def check_part(choice: str, part: tf.Tensor) -> None:
    """Raises ValueError for an output that cannot be merged in the chosen way."""
    if choice == "concatenate" and part.shape.rank == 0:
        raise ValueError("merge='concatenate' takes outputs with rows. Received a scalar.")
    if choice != "concatenate" and part.dtype in (tf.bool, tf.string):
        raise ValueError(
            f"Only numbers have a {choice}. Received an output of type {part.dtype.name}; cast it, "
            "or use merge='concatenate' for an output with rows."
        )


def check_merge(merge: Any) -> None:
    """Raises ValueError for an unknown way to merge."""
    for choice in keras.tree.flatten(merge):
        if choice not in MERGES:
            raise ValueError(
                f"merge must be one of {', '.join(MERGES)}, or a nest of them. Received {choice!r}."
            )


def check_tensors(tensors: dict[str, Any]) -> None:
    """Raises ValueError unless every tensor has rows, the same number in each."""
    check_batch_spec(tf.nest.map_structure(tf.TensorSpec.from_tensor, tensors))
    if tf.nest.flatten(tensors)[0].shape[0] == 0:
        raise ValueError(f"There is nothing to run: the tensors {list(tensors)} have no rows.")
