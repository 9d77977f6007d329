"""Everything private of Keras and TensorFlow that the project uses, and what each is for.

Private names may change in any release: `setup.cfg` pins both libraries, and this is the module to
read before the pins are moved. It imports neither by itself. What it hands on is imported when it
is first named; what is private about an object is asked for by a function.
"""

from __future__ import annotations

import contextlib
import importlib
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

CHECKS = {"Assert", "CheckNumerics", "CheckNumericsV2"}
HANDED_ON = {
    # What Keras's operations on arrays call, such as `argmax`.
    "numpy": "keras.src.backend.tensorflow",
    # What Keras's cross-entropies ask for the logits of probabilities.
    "nn": "keras.src.backend.tensorflow",
    # Whether `enable_op_determinism` was called; the public API only calls it.
    "is_op_determinism_enabled": "tensorflow.python.framework.config",
    # The graph of a branch of `tf.cond` or `tf.switch_case`.
    "CondBranchFuncGraph": "tensorflow.python.ops.control_flow_v2_func_graphs",
    # The graph that is traced at the moment.
    "get_default_graph": "tensorflow.python.framework.ops",
    # Whether TensorFlow's CPU kernels are those of oneDNN.
    "IsMklEnabled": "tensorflow.python.framework.test_util",
    # Which kernels an op has, for which devices and types, with which arguments in host memory.
    "get_registered_kernels_for_op": "tensorflow.python.framework.kernels",
    # What an op takes and returns, without the cost of its `op_def`.
    "op_def_registry": "tensorflow.python.framework",
    # The graphs that ran, cut by device; and how long a silent process is waited for.
    "context": "tensorflow.python.eager",
    "CoordinatedJob": "tensorflow.compiler.xla.tsl.protobuf.coordination_config_pb2",
    # How a graph that runs is stopped from another thread.
    "CancellationManager": "tensorflow.python.eager.cancellation",
    "CancellationManagerContext": "tensorflow.python.eager.cancellation",
    # Whether a tape records.
    "could_possibly_record": "tensorflow.python.eager.record",
    # How a tape learns of outputs whose gradient is computed by a function of our own.
    "record_operation": "tensorflow.python.eager.record",
    "stop_recording": "tensorflow.python.eager.record",
    "variable_accessed": "tensorflow.python.eager.tape",
    # The function `cond`, by which all take one of two branches.
    "cond": "tensorflow.python.ops",
    # The ops `add_n`, by which tapes add gradients, `sigmoid` and `softmax`.
    "gen_math_ops": "tensorflow.python.ops",
    "gen_nn_ops": "tensorflow.python.ops",
    # Which trainable variables are read, without a tape.
    "VariableWatcher": "tensorflow.python.eager.record",
    # What `tf.function` makes, and what Keras's operations ask and set in their calls.
    "Function": "tensorflow.python.eager.polymorphic_function.polymorphic_function",
    "in_stateless_scope": "keras.src.backend.common.stateless_scope",
    # What a model returns for symbolic inputs, as Keras itself asks when it builds one.
    "compute_output_spec": "keras.src.backend",
    # Types of what `as_graph_def` and the graphs that ran consist of.
    "GraphDef": "tensorflow.core.framework.graph_pb2",
    "NodeDef": "tensorflow.core.framework.node_def_pb2",
    # How `keras.Model.fit` reads, checks and cuts data of any kind.
    "get_data_adapter": "keras.src.trainers.data_adapters",
    "DataAdapter": "keras.src.trainers.data_adapters.data_adapter",
    "ArrayDataAdapter": "keras.src.trainers.data_adapters.array_data_adapter",
    "GeneratorDataAdapter": "keras.src.trainers.data_adapters.generator_data_adapter",
    "PyDatasetAdapter": "keras.src.trainers.data_adapters.py_dataset_adapter",
    "convert_to_sliceable": "keras.src.trainers.data_adapters.array_slicing",
    "TensorflowSparseWrapper": "keras.src.trainers.data_adapters.array_slicing",
    "slice_tensorflow_sparse_wrapper": "keras.src.trainers.data_adapters.array_slicing",
    "train_validation_split": "keras.src.trainers.data_adapters.array_slicing",
    # How `keras.Model.predict` joins the outputs of batches.
    "potentially_ragged_concat": "keras.src.backend.tensorflow.trainer",
    # What `compile(loss=...)` becomes.
    "CompileLoss": "keras.src.trainers.compile_utils",
    # What most losses are.
    "LossFunctionWrapper": "keras.src.losses.losses",
    # What a loss does between its values and their sum.
    "apply_mask": "keras.src.losses.loss",
    "get_keras_mask": "keras.src.backend",
    "squeeze_or_expand_to_same_rank": "keras.src.losses.loss",
    # All metrics that Keras itself wrote.
    "ALL_OBJECTS": "keras.src.metrics",
    # The seed of `set_random_seed`.
    "get_random_seed": "keras.src.utils.rng_utils",
    # How often each automatic name was given, by which the next one is numbered.
    "get_global_attribute": "keras.src.backend.common.global_state",
}

# The attributes of a tensor with its Keras mask, and with the numbers of which it is the softmax or
# the sigmoid; and the function of `nn` that looks for these.
KERAS_MASK, KERAS_LOGITS, GET_LOGITS = "_keras_mask", "_keras_logits", "_get_logits"

# The method of a `tf.Variable` by which `tf.train.Checkpoint` writes it.
RESTORE_METHOD = "_restore_from_tensors"


def __getattr__(name: str) -> Any:
    """Returns what is handed on by this name; its library is imported now."""
    if name not in HANDED_ON:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(HANDED_ON[name])
    if not hasattr(module, name):
        return importlib.import_module(f"{HANDED_ON[name]}.{name}")
    return getattr(module, name)


# Keras: random numbers.


def global_seed_generator() -> Any:
    """Returns the generator of what `keras.random` draws without a seed.

    Where there is none yet it is made in a thread of its own, outside of every graph and scope: a
    `tf.function` that makes a variable is traced again. Python's own random numbers stay as they
    were: Keras takes one of them for the generator, and only if it draws.
    """
    from keras.src.backend.common import global_state
    from keras.src.random import seed_generator

    name = "global_seed_generator"
    found = global_state.get_global_attribute(name)
    if found is None:
        state = random.getstate()
        with ThreadPoolExecutor(1) as thread:
            found = thread.submit(seed_generator.global_seed_generator).result()
        random.setstate(state)
        global_state.set_global_attribute(name, found)
    return found


# Keras: a compiled model.


def compile_loss_of(model: Any) -> Any:
    """Returns what `compile(loss=...)` became, a `CompileLoss`, or None."""
    return model._compile_loss


def compile_metrics_of(model: Any) -> Any:
    """Returns what `compile(metrics=...)` became, one metric of all of them, or None."""
    return model._compile_metrics


def metrics_by_output(metrics: Any, y: Any, y_pred: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yields each metric in a built `CompileMetrics` with the labels and the output of its own."""
    if metrics is None or not metrics.built:
        return
    pairs = list(zip(metrics._flatten_y(y), metrics._flatten_y(y_pred), strict=False))
    for lists in (metrics._flat_metrics, metrics._flat_weighted_metrics):
        for one, (labels, output) in zip(lists, pairs, strict=False):
            for metric in one.metrics if one else ():
                yield metric, labels, output


def loss_tracker(model: Any) -> Any:
    """Returns the metric that is the `loss` in a model's logs; None before it is compiled."""
    return getattr(model, "_loss_tracker", None)


def flat_losses(losses: Any) -> list[Any]:
    """Returns the losses in a built `CompileLoss`: tuples (path, loss, loss_weights, name)."""
    return list(losses._flat_losses)


def with_losses(losses: Any, other: Callable[[Any, Any], Any]) -> Any:
    """Returns a `CompileLoss` that calls `other(loss, weight)` in place of each loss.

    What it calls has no weight, and no means are recorded.
    """
    others = [one._replace(loss=other(one.loss, one.loss_weights), loss_weights=None)
              for one in flat_losses(losses)]  # fmt: skip
    changed = object.__new__(type(losses))
    changed.__dict__.update(vars(losses), _flat_losses=others, _metrics=[None] * len(others))
    return changed


@contextlib.contextmanager
def with_metric_function(metric: Any, function: Any) -> Iterator[None]:
    """The scope in which a `MeanMetricWrapper` calls another function, with its options."""
    before, metric._fn = metric._fn, function
    try:
        yield
    finally:
        metric._fn = before


def metric_function(metric: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the function that a `MeanMetricWrapper` calls, and its options."""
    return metric._fn, metric._fn_kwargs


def loss_options(loss: Any) -> dict[str, Any]:
    """Returns the options of the function that a loss of Keras's wraps."""
    return getattr(loss, "_fn_kwargs", {})


def build_symbolically(model: Any, batch: Any) -> None:
    """Builds a model, its losses and its metrics for a batch of `keras.KerasTensor`s.

    Its optimizer is built by the first update, as in Keras's own graph.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or optimizer.built:
        model._symbolic_build(data_batch=batch)
        return
    optimizer.built = True
    try:
        model._symbolic_build(data_batch=batch)
    finally:
        optimizer.built = False


def takes_training(model: Any) -> bool:
    """Returns whether a model's `call` has the argument `training`."""
    return model._call_has_training_arg


def initial_epoch(model: Any) -> int | None:
    """Returns the epoch from which `BackupAndRestore` goes on, or None."""
    return model._initial_epoch


def set_initial_epoch(model: Any, epoch: int) -> None:
    """Sets the epoch with which `fit` begins after `on_train_begin`; 0: that of its argument."""
    model._initial_epoch = epoch or None


def flatten_layers(layer: Any, **options: bool) -> list[Any]:
    """Returns a layer and the layers in it; `include_self`, `recursive` choose among them."""
    return list(layer._flatten_layers(**options))


def arguments_of(operations: Sequence[Any]) -> list[Any]:
    """Returns what operations take in the models that they are nodes of."""
    nodes = [node for one in operations for node in one._inbound_nodes]
    return [(node.arguments.args, node.arguments.kwargs) for node in nodes]


def owner_of_loss(layer: Any, loss: Any) -> Any:
    """Returns the layer, of a layer and those in it, that added a loss in a stateless scope."""
    return next(one for one in flatten_layers(layer) if id(loss) in one._loss_ids)


def added_losses(layer: Any) -> list[Any]:
    """Returns the list of the losses that a layer added outside of every scope."""
    return layer._losses


def variables_built_for(optimizer: Any) -> list[Any]:
    """Returns the variables that a built optimizer of Keras's trains, in its own order."""
    return list(optimizer._trainable_variables)


def learning_rate_object(optimizer: Any) -> Any:
    """Returns an optimizer's learning rate itself: a variable or a schedule, not its value."""
    return optimizer._learning_rate


def updates_made(model: Any) -> int:
    """Returns how many updates a model's optimizer has made, also those that it only adds up."""
    optimizer = getattr(model, "optimizer", None)
    inner: Any = getattr(optimizer, "inner_optimizer", optimizer)  # Of one that scales the loss.
    if getattr(inner, "gradient_accumulation_steps", None):
        return int(inner._iterations)
    return int(getattr(optimizer, "iterations", 0))


def slots_of(optimizer: Any, variable: Any, *kinds: str) -> list[Any]:
    """Returns a variable's slots in a built optimizer, a `tf.Variable` each.

    Args:
        kinds: how Keras calls the lists of such slots: `momentums`, `velocities`, `accumulators`.
    """
    index = optimizer._get_variable_index(variable)
    lists = (getattr(optimizer, kind, None) or getattr(optimizer, f"_{kind}") for kind in kinds)
    return [slots[index].value for slots in lists]


def stored_value(variable: Any) -> Any:
    """Returns the `tf.Variable` of a Keras variable, whatever the scope; None before it is made."""
    return variable._value


def store_value(variable: Any, value: Any) -> None:
    """Gives a Keras variable another `tf.Variable`."""
    variable._value = value


def array_rows(adapter: Any) -> tuple[int, Any]:
    """Returns the number of rows of an `ArrayDataAdapter`, and its arrays."""
    return adapter._num_samples, adapter._inputs


def batches_seen(adapter: Any) -> list[Any]:
    """Returns the batches that an adapter took from a generator to learn what it yields."""
    return getattr(adapter, "_first_batches", [])


def with_passes(adapter: Any, signature: Any) -> Any:
    """Returns the data set of a `PyDatasetAdapter`; each pass over it is an epoch of its own.

    An epoch that is left early ends as well, with the threads or processes of its workers.

    Args:
        signature: the specs of a batch, which two batches are loaded for otherwise.
    """
    iterate = adapter._get_iterator

    def one_epoch() -> Iterator[Any]:
        adapter.py_dataset.on_epoch_begin()  # Before the workers ask for the number of batches.
        try:
            yield from iterate()
        finally:
            adapter.on_epoch_end()

    adapter._output_signature, adapter._get_iterator = signature, one_epoch
    return adapter.get_tf_dataset()


# TensorFlow: variables, ops, data sets.


def has_begun() -> bool:
    """Returns whether TensorFlow has opened its devices, as the first tensor makes it do."""
    from tensorflow.python.eager import context

    return context.context()._context_handle is not None


def take_identity(copy: Any, source: Any) -> None:
    """Gives a `tf.Variable` the id of another, by which Keras's optimizers find slots."""
    copy._unique_id = source._unique_id


def graphs_within(graph: Any, outer: Any) -> list[Any]:
    """Returns the graphs from one up to another that is around it, without that one."""
    found = []
    while graph is not None and graph is not outer:
        found.append(graph)
        graph = getattr(graph, "outer_graph", None)
    return found


def graphs_run_by(op: Any) -> list[Any]:
    """Returns the graphs of the loop or the branches that an op runs."""
    from tensorflow.python.ops.control_flow_util_v2 import get_func_graph

    if op.type in ("Case", "StatelessCase"):
        shapes = [one.shape for one in op.inputs[1:]]
        return [get_func_graph(op, shapes, one.name) for one in op.get_attr("branches")]
    names = ("_cond_graph", "_body_graph", "_true_graph", "_false_graph")
    return [graph for name in names if (graph := getattr(op, name, None)) is not None]


def graphs_called_by(op: Any) -> list[Any]:
    """Returns the graphs of all functions that an op calls, also those of a saved model."""
    from tensorflow.python.ops.control_flow_util_v2 import get_func_graph

    called = [(one.func, *one.list.func) for one in op.node_def.attr.values()]
    names = [one.name for each in called for one in each if one.name]
    return graphs_run_by(op) or [get_func_graph(op, None, name) for name in names]


def replace_input(op: Any, index: int, tensor: Any) -> None:
    """Gives an op that is in a graph another tensor as input."""
    op._update_input(index, tensor)


def set_device(op: Any, device: str) -> None:
    """Moves an op that is in a graph to a device."""
    op._set_device(device)


def has_neighbours(op: Any) -> bool:
    """Returns whether an op that is in a graph is to be placed beside others."""
    return "_class" in op.node_def.attr


def leave_neighbours(op: Any) -> None:
    """Lets an op that is in a graph be placed apart from those that it was to be beside."""
    op._clear_attr("_class")


def twin_of(function: Any) -> Any:
    """Returns a `tf.function` that traces the same Python code anew, without XLA."""
    twin = function._clone(None)
    twin._jit_compile = None
    return twin


def run_code(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Returns what a `tf.function` returns, without a graph of its own.

    Its Python code gets and returns tensors as in a trace; within a graph, its branches are ops.
    """
    import tensorflow as tf
    from tensorflow.core.function.trace_type import InternalCastContext
    from tensorflow.python.autograph.core import ag_ctx
    from tensorflow.python.autograph.impl import api
    from tensorflow.python.eager.polymorphic_function import function_type_utils

    kind, defaults = function.function_type, function._default_values
    bound = function_type_utils.bind_function_inputs(args, kwargs, kind, defaults)
    for name, value in bound.arguments.items():
        signature = kind.parameters[name].type_constraint
        if signature is not None:
            bound.arguments[name] = signature.cast(value, InternalCastContext())
    args, kwargs = tf.nest.map_structure(_as_tensor, (bound.args, bound.kwargs))
    code = function.python_function
    if not tf.executing_eagerly() and function._autograph:
        enabled = ag_ctx.ControlStatusCtx(status=ag_ctx.Status.ENABLED)
        code = api.tf_convert(code, enabled, user_requested=True)
    return tf.nest.map_structure(as_result, code(*args, **kwargs))


def _as_tensor(value: Any) -> Any:
    """Returns an array as a tensor, and anything else as it is."""
    import numpy as np
    import tensorflow as tf

    return tf.convert_to_tensor(value) if isinstance(value, (np.ndarray, np.generic)) else value


def as_result(value: Any) -> Any:
    """Returns what comes out of a graph as a tensor: numbers, and values of variables."""
    import keras
    import tensorflow as tf

    kinds = (bool, int, float, complex, str, bytes, tf.Variable, keras.Variable)
    return tf.convert_to_tensor(value) if isinstance(value, kinds) else _as_tensor(value)


@contextlib.contextmanager
def checks_in_any_order() -> Iterator[None]:
    """The scope in which a trace does not order assertions and checks of numbers.

    TensorFlow orders them as they are traced, one tower after the other. Towers that add in the
    middle of a pass would wait for each other in a circle.
    """
    from tensorflow.python.framework import auto_control_deps

    before = auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS
    auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS = before | CHECKS
    try:
        yield
    finally:
        auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS = before


def in_xla() -> bool:
    """Returns whether what is traced here is compiled by XLA."""
    from tensorflow.python.framework.ops import get_default_graph
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

    return bool(GraphOrParentsInXlaContext(get_default_graph()))


def is_compiled(function: Any) -> bool:
    """Returns whether XLA compiles a `tf.function`."""
    return bool(function._jit_compile)


def call_of_tensors(function: Any) -> Callable[[Sequence[Any]], Any]:
    """Returns an eager call of a `ConcreteFunction` by its flat tensors, which checks nothing.

    What changes with each call, such as the key of a sum over processes, is captured anew.
    """
    call, captured = function.inference_fn.call_preflattened, function.captured_inputs
    if function.graph.deferred_external_captures:
        return lambda tensors: call([*tensors, *function.captured_inputs])
    return lambda tensors: call([*tensors, *captured])


def rewrite_with(function: Any, **settings: Any) -> None:
    """Gives a traced function settings of its own for TensorFlow's rewriting of its graph.

    Args:
        function: a `ConcreteFunction`, before its first call.
        settings: fields of `RewriterConfig`; others stay as the program has set them.
    """
    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.python.eager.context import Context, FunctionCallOptions, context

    class Own:
        """The eager context, with other options of calls."""

        call_function = Context.call_function

        def __init__(self, options: Any):
            self.function_call_options = options

        def __getattr__(self, name: str) -> Any:
            return getattr(context(), name)

    options = context().function_call_options
    config = ConfigProto.FromString(options.config_proto_serialized)
    for name, value in settings.items():
        setattr(config.graph_options.rewrite_options, name, value)
    own = FunctionCallOptions(options.executor_type, config)
    function._inference_function._bound_context = Own(own)


@contextlib.contextmanager
def recording_again(tape: Any) -> Iterator[bool]:
    """The scope in which a persistent tape goes on recording; it yields whether it has to."""
    from tensorflow.python.eager import record
    from tensorflow.python.eager import tape as tapes

    if not record.could_possibly_record():
        yield False
        return
    tapes.push_tape(tape._tape)
    try:
        yield True
    finally:
        tapes.pop_tape(tape._tape)


def order_of_gradients(tensors: Sequence[Any], variables: Sequence[Any]) -> int:
    """Returns of which order gradients by these may be asked: 0, 1, or 2 for any other.

    Also a persistent tape and one that goes forward ask for others.

    Args:
        tensors: tensors, which are no variables.
        variables: Keras variables, which are read then.
    """
    from tensorflow.python.eager import forwardprop_util, tape
    from tensorflow.python.ops.gradients_util import PossibleTapeGradientTypes

    stored = list(map(stored_value, variables))
    for variable in stored:
        tape.variable_accessed(variable)
    given = [*tensors, *(variable.handle for variable in stored)]
    if forwardprop_util.pack_tangents(given).tangents:
        return 2
    return int(PossibleTapeGradientTypes(given))


def push_of_tapes() -> tuple[Any, str]:
    """Returns the class and the name of what a `tf.GradientTape` calls when it begins to record."""
    from tensorflow.python.eager.backprop import GradientTape

    return GradientTape, "_push_tape"


def random_ops() -> list[tuple[Any, str]]:
    """Returns the ops that draw, each as a module and a name, whatever draws through them."""
    from tensorflow.python.ops import gen_random_ops as stateful
    from tensorflow.python.ops import gen_stateless_random_ops_v2 as stateless

    names = "random_standard_normal random_uniform random_uniform_int truncated_normal"
    found = [(stateful, name) for name in (*names.split(), "random_shuffle")]
    kinds = "uniform_v2 uniform_int_v2 uniform_full_int_v2 normal_v2"
    found += [(stateless, f"stateless_random_{kind}") for kind in kinds.split()]
    return [*found, (stateless, "stateless_truncated_normal_v2")]


def reshuffle_sizes(dataset: Any) -> list[int]:
    """Returns the buffer sizes of all shuffles in a data set that draw another order each time."""
    found = [size for source in dataset._inputs() for size in reshuffle_sizes(source)]
    reshuffles = getattr(dataset, "_reshuffle_each_iteration", None)
    return [int(dataset._buffer_size), *found] if reshuffles else found


def register_failures(core: Any) -> None:
    """Lets TensorFlow make the exception of a failed call without Python code.

    What catches it turns it into one of `tf.errors`.

    Args:
        core: the module `tensorflow.python.eager.core`.
    """

    class Failure(core._NotOkStatusException):
        __init__ = Exception.__init__  # It is in C.

        def __getattr__(self, name: str) -> Any:
            """Returns a part of what TensorFlow gave, as the class around has it."""
            indices = {"message": 0, "code": 1, "payloads": 2}
            if name not in indices:
                raise AttributeError(name)
            return self.args[indices[name]]

    core.pywrap_tfe.TFE_Py_RegisterExceptionClass(Failure)
