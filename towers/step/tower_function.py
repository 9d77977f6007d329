"""The tower function that a user writes, with the variables and the state that it uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from towers.batches.shards import Batch, Shard
from towers.devices.determinism import is_deterministic, sums_stay_nested
from towers.devices.placement import Placement
from towers.processes.processes import Processes
from towers.step.carried import CarriedState, CarriedValues
from towers.step.options import StepOptions
from towers.step.synchronized import Listener
from towers.variables.find_variables import NotCompilableError, gather_variables
from towers.variables.outside_writes import unobserved
from towers.variables.shared_variables import SharedVariables

RESERVED_METRICS = (
    "loss", "examples", "gradient_norm", "examples_per_second", "input_wait", "learning_rate",
    "staleness",
)  # fmt: skip
# A metric is a sum over the examples, divided by the weight, or a pair (sum, its own weight). The
# weight None marks a sum that is not divided; it may have any shape.
Metrics = dict[str, Any]
# As users write it: (batch) -> (loss_sum, weight, metrics).
TowerFn = Callable[..., tuple[Any, ...]]
# One loss and its weight, or a tuple of each; the weight None marks a loss that is not divided.
Results = tuple[Any, Any, Metrics]


class TowerProgram(NamedTuple):
    """The program that every tower runs.

    Attributes:
        shard_fn: the tower function on the pair (batch, state).
        shared: the variables that it uses.
        carried: the state that it carries from step to step.
        synchronized: whether layers sum over the replicas.
    """

    shard_fn: ShardFn
    shared: SharedVariables
    carried: CarriedState
    options: StepOptions
    synchronized: bool = False


def make_program(
    tower_fn: TowerFn,
    variables: keras.Model | Sequence[keras.Variable],
    placement: Placement,
    specs: Sequence[Shard],
    options: StepOptions,
) -> TowerProgram:
    """Returns the program of a tower function; an unbuilt model is built on the parameter device.

    The specs are those of each tower's shard.
    """
    check_variables(variables)
    if options.compiled:
        placement.check_one_device("compiled=True")
        check_compilable(specs[0])
    carried = CarriedState(options.carried, placement.devices)
    shard_fn = ShardFn(tower_fn, carried.shard_specs)
    listener = Listener()
    with placement.scope(), unobserved(), listener:  # The trace is not run: it writes no variable.
        pair = (specs[0].batch, carried.shard_specs)
        shared = gather_variables(shard_fn, variables, pair, compiled=options.compiled)
    shared.stages = placement.place(variables)
    return TowerProgram(shard_fn, shared, carried, options, listener.has_heard)


def check_variables(variables: keras.Model | Sequence[keras.Variable]) -> None:
    """Raises ValueError for what are neither Keras variables nor an object that owns some."""
    if hasattr(variables, "variables"):
        return
    if not isinstance(variables, (list, tuple)):
        received = repr(variables)
        if isinstance(variables, keras.Variable):  # Keras's own words show all its numbers.
            received = f"<Variable {variables.path}>"
        raise ValueError(
            "variables must be the model, or a list of its Keras variables. Received "
            f"{received}; pass the model itself, or model.variables."
        )
    for part in variables:
        if isinstance(part, keras.Variable):
            continue
        remedy = "make it a keras.Variable, or a weight of a Keras layer (add_weight)"
        if hasattr(part, "variables"):
            remedy = "pass the model itself, or model.variables; for several models, their sum"
        raise ValueError(
            "variables must be the model, or a list of its Keras variables. Received a list with "
            f"{part!r}; {remedy}."
        )


def check_compilable(spec: Shard) -> None:
    """Raises NotCompilableError for strings in towers that XLA compiles."""
    if tf.string in [part.dtype for part in tf.nest.flatten(spec)]:
        raise NotCompilableError(
            "XLA cannot compile strings. Received a batch with strings and compiled=True; turn "
            "them into numbers in the data set (`dataset.map`), or leave compiled out."
        )


class ShardFn:
    """The tower function as a tower calls it: with the pair (batch, state).

    Args:
        tower_fn: `tower_fn(batch, state) -> (loss_sum, weight, metrics, state)`, or, without a
            carried state, `tower_fn(batch) -> (loss_sum, weight, metrics)`.
        specs: the specs of a shard's state; () without a carried state.

    Attributes:
        needs_denominators: whether a loss is divided by something else than the weight that it
            comes with: there are several losses, or one that is not divided. Known once called.
    """

    def __init__(self, tower_fn: TowerFn, specs: Any = ()):
        self.needs_denominators = False
        self._tower_fn = tower_fn
        self._specs = specs

    def __call__(self, pair: tuple[Batch, CarriedValues]) -> tuple[Results, CarriedValues]:
        """Returns checked results and the new state; arguments as the tower function's."""
        batch, state = pair
        results: Any = self._tower_fn(batch, state) if self._specs else self._tower_fn(batch)
        if self._specs:
            if not isinstance(results, tuple) or len(results) != 4:
                raise ValueError(
                    "A tower function that carries a state returns (loss_sum, weight, metrics, "
                    f"state). Received {results!r}."
                )
            results, state = results[:3], check_state(results[3], self._specs)
        results = check_results(results)
        self.needs_denominators = isinstance(results[0], tuple)
        return results, state


def check_state(state: CarriedValues, specs: Any) -> CarriedValues:
    """Returns a new state as tensors; raises ValueError unless its specs match."""
    try:
        tf.nest.assert_same_structure(specs, state, check_types=False)
        values = [tf.convert_to_tensor(value) for value in tf.nest.flatten(state)]
        pairs = zip(tf.nest.flatten(specs), values, strict=True)
        same = all(spec.is_compatible_with(value) for spec, value in pairs)
    except (TypeError, ValueError):
        same = False
    if not same:
        raise ValueError(
            "The new state must have the structure, the dtypes and the shapes of the old one. "
            f"Expected {specs}. Received {state}."
        )
    return tf.nest.pack_sequence_as(specs, values)


def check_results(results: Any) -> Results:
    """Returns a tower function's results as tensors; raises ValueError if they are wrong.

    Several losses, and one that is not divided, come back as a tuple with a tuple of weights.
    """
    if not isinstance(results, tuple) or len(results) != 3 or not isinstance(results[2], dict):
        raise ValueError(
            "A tower function returns (loss_sum, weight, metrics): two scalars and a dict of "
            f"scalars. Received {results!r}."
        )
    losses, weights, metrics = results
    for name, value in metrics.items():
        check_metric(name, value)
    if not isinstance(losses, (tuple, list)):
        if weights is None:
            raise ValueError(
                "The weight of a loss is the number of examples (or tokens) that it sums over. "
                "Received None, as x.shape[0] is for a batch of any size; use tf.shape(x)[0]. To "
                "return a loss that is not divided, return (loss,), (None,), metrics."
            )
        return (*check_loss(losses, weights), metrics)
    losses, weights = (part if isinstance(part, (tuple, list)) else [part] for part in results[:2])
    if not losses or len(losses) != len(weights):
        raise ValueError(
            "A tower function with several losses returns one weight for each (None for a sum that "
            f"is not divided). Received {len(losses)} losses and {len(weights)} weights."
        )
    losses, weights = zip(*map(check_loss, losses, weights), strict=True)
    return tuple(tf.cast(loss, losses[0].dtype) for loss in losses), weights, metrics


def check_loss(loss: Any, weight: Any) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Returns a loss and its weight as tensors, float32 for 16 bits; the weight None stays None."""
    loss = tf.convert_to_tensor(loss)
    if loss.dtype in (tf.float16, tf.bfloat16):
        loss = tf.cast(loss, tf.float32)
    # A number of Python's is float32 of its own accord.
    weight = None if weight is None else tf.convert_to_tensor(weight, dtype_hint=loss.dtype)
    shape, kind = ((), "") if weight is None else (weight.shape, f" and {weight.dtype.name}")
    is_sum = loss.shape.rank == 0 and loss.dtype.is_floating
    if not is_sum or not (weight is None or is_scalar(weight)):
        raise ValueError(
            "A tower function returns the loss summed over the shard, a floating-point scalar, "
            f"and its weight, a scalar. Received a loss of shape {loss.shape} and "
            f"{loss.dtype.name}, and a weight of shape {shape}{kind}; "
            "use tf.reduce_sum, not the mean."
        )
    return loss, weight


def check_metric(name: str, value: Any) -> None:
    """Raises ValueError for a reserved name or a metric of another form than scalars."""
    if name in RESERVED_METRICS:
        raise ValueError(
            f"The engine reports {', '.join(RESERVED_METRICS)} itself. Received a metric named "
            f"{name!r}; rename it."
        )
    if not isinstance(name, str):
        raise ValueError(f"A metric's name is a text, such as 'accuracy'. Received {name!r:.80}.")
    if isinstance(value, tuple) and len(value) == 2 and value[1] is None:
        return
    parts = value if isinstance(value, tuple) else (value,)
    is_pair = isinstance(value, tuple)
    if len(parts) != 1 + is_pair or not all(map(is_scalar, parts)):
        found = [tuple(part.shape) if hasattr(part, "shape") else part for part in parts]
        raise ValueError(
            "A metric is a sum over the shard (a scalar), a pair of scalars (sum, weight), or a "
            f"pair (sum, None) of any shape, which is not divided. Received {name!r} with shapes "
            f"{found!r:.80}; use tf.reduce_sum, not the mean."
        )


def is_scalar(value: Any) -> bool:
    """Returns whether a value is a scalar, or a tensor of one, that is no text."""
    if value is None:
        return False
    tensor = tf.convert_to_tensor(value)
    return tuple(tensor.shape) == () and tensor.dtype != tf.string


def check_kinds(
    placement: Placement,
    options: StepOptions = StepOptions(),
    processes: Processes | None = None,
) -> None:
    """Raises ValueError for what is no placement, options or processes, or fits no processes."""
    processes = Processes() if processes is None else processes
    for name, value, kind, example in (
        ("placement", placement, Placement, "towers.Placement(devices)"),
        ("options", options, StepOptions, "towers.StepOptions(clip_norm=5.0)"),
        ("processes", processes, Processes, "towers.processes.join_processes(...)"),
    ):
        if not isinstance(value, kind):
            raise ValueError(
                f"{name} must be a {kind.__name__}, such as {example}. Received {value!r}."
            )
    if processes.count > 1 and options.carried is not None:
        raise ValueError(
            "Only the towers of one process can share the rows of a carried state. Received "
            f"carried={options.carried} and {processes.count} processes; use one, with more towers."
        )
    if is_deterministic() and sums_stay_nested():  # Not by TensorFlow's own option alone.
        check_same_parts(options)


def check_same_parts(options: StepOptions) -> None:
    """Raises ValueError for options whose results depend on how many towers have the parts."""
    if options.accumulate & (options.accumulate - 1) or options.batch_norm != "mean":
        raise ValueError(
            "A deterministic step gets the same bits on any number of towers. Received "
            f"accumulate={options.accumulate} and batch_norm={options.batch_norm!r} after "
            "enable_determinism(); use 1, 2, 4 or another power of two, and 'mean'."
        )
