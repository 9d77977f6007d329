"""What the host knows stays on the host: seeds, shapes, lengths and ids, beside a tower on a GPU.

TensorFlow's GPU kernels take shapes and seeds from host memory, but compute some integers in device
memory (int64 seeds, a gather from a shape). Such a number travels to the GPU and back, and the host
waits for all that the GPU was given before it can go on.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import tensorflow as tf

from towers.devices.op_devices import device_name
from towers.devices.stages import choose_device
from towers.ground.host import HOST, device_type
from towers.ground.private_apis import (
    get_default_graph,
    get_registered_kernels_for_op,
    has_neighbours,
    leave_neighbours,
    op_def_registry,
    replace_input,
    set_device,
)

LOOPS = ("While", "StatelessWhile")
FEW = 1024  # Elements of a constant that is cheap to keep on the host.


@contextlib.contextmanager
def tower_device(*devices: str) -> Iterator[None]:
    """The scope of a tower's devices; next to a GPU, integers that the host knows stay there.

    An op without a device of its own is placed on the host if all that it takes is in host memory,
    all that it returns are integers or booleans, and its GPU kernel would move them. Bodies of
    loops stay on one device as a whole.

    Args:
        devices: TensorFlow device names: the tower's device, or one for each of its stages.
    """
    names = list(map(device_name, devices))
    on_gpu = "GPU" in names[0]
    if tf.executing_eagerly() or (len(devices) == 1 and not on_gpu):
        with tf.device(devices[0]):
            yield
        return
    graph, device_of = get_default_graph(), choose_device(devices)
    first = graph.num_operations()

    def choose(op: tf.Operation) -> str:
        if op.device or op.graph is not graph or not on_gpu:  # A loop's body is on one device.
            return device_of(op)
        on_host = belongs_to_host(op)
        for constant in constants_of(op, on_host=on_host):
            set_device(constant, HOST)  # It was made before the op that takes it.
        return HOST if on_host else device_of(op)

    with graph.device(choose):
        yield
    made = graph.get_operations()[first:] if on_gpu else []
    for op in made:
        # Gradient functions put some ops beside a shape that they take, whatever the scope says.
        if has_neighbours(op) and op.device in names and belongs_to_host(op):
            leave_neighbours(op)
            set_device(op, HOST)
    for op in made:
        if op.type in LOOPS and op.device in names:
            with tf.device(op.device):
                bring_inputs(op)


def bring_inputs(loop: tf.Operation) -> None:
    """Gives a loop what it takes on the current device, for TensorFlow follows a loop's inputs.

    With one of them elsewhere, a part of the loop is there, and each iteration is told to it.
    TensorFlow keeps int32 numbers of a loop on the host without that.
    """
    for index, tensor in enumerate(loop.inputs):
        elsewhere = device_name(tensor.device) not in ("", device_name(loop.device))
        if elsewhere and tensor.dtype not in (tf.int32, tf.resource, tf.variant):
            replace_input(loop, index, tf.identity(tensor))


def belongs_to_host(op: tf.Operation) -> bool:
    """Returns whether an op only moves what the host has, so that it is placed there."""
    if not op.inputs or has_functions(op) or op_def_registry.get(op.type).is_stateful:
        return False
    whole = [tensor.dtype.is_integer or tensor.dtype.is_bool for tensor in op.outputs]
    if not whole or not all(whole) or not all(map(is_on_host, op.inputs)):
        return False
    taken, returned = in_host_memory(op)  # Of its GPU kernel.
    return len(taken) < len(op.inputs) or len(returned) < len(op.outputs)


def constants_of(op: tf.Operation, *, on_host: bool) -> list[tf.Operation]:
    """Returns the constants in device memory that an op takes from host memory."""
    if has_functions(op) or not op.inputs:
        return []
    taken = range(len(op.inputs)) if on_host else in_host_memory(op)[0]
    constants = [op.inputs[index].op for index in taken if op.inputs[index].op.type == "Const"]
    return [one for one in constants if is_on_host(one.outputs[0]) and not in_host_memory(one)[1]]


def has_functions(op: tf.Operation) -> bool:
    """Returns whether an op calls functions, as loops and branches do, or is a function."""
    definition = op_def_registry.get(op.type)
    return definition is None or any("func" in attribute.type for attribute in definition.attr)


def is_on_host(tensor: tf.Tensor) -> bool:
    """Returns whether a tensor is in host memory, or a small constant that could be."""
    op = tensor.op
    if device_type(op.device) == "CPU":
        return tensor.dtype.is_integer or tensor.dtype.is_bool
    if op.type == "Placeholder":
        # TensorFlow keeps int32 arguments of a function on the host. The only other scalar is the
        # step's number.
        return tensor.dtype == tf.int32 or (tensor.dtype == tf.int64 and tensor.shape.rank == 0)
    if op.type == "Const":
        size = tensor.shape.num_elements()
        return size <= FEW and (tensor.dtype.is_integer or tensor.dtype.is_bool)
    return tensor.value_index in in_host_memory(op)[1]


def in_host_memory(op: tf.Operation) -> tuple[frozenset[int], frozenset[int]]:
    """Returns which inputs and which outputs of an op its GPU kernel has in host memory."""
    if has_functions(op):
        return frozenset(), frozenset()
    definition = op_def_registry.get(op.type)
    types = tuple(
        (attribute.name, op.get_attr(attribute.name).as_datatype_enum)
        for attribute in definition.attr
        if attribute.type == "type"
    )
    names = host_arguments(op.type, types)
    return indices(definition.input_arg, op, names), indices(definition.output_arg, op, names)


def indices(arguments, op: tf.Operation, names: frozenset[str]) -> frozenset[int]:  # type: ignore[no-untyped-def]
    """Returns the indices of an op's tensors whose arguments have these names."""
    found: set[int] = set()
    index = 0
    for argument in arguments:
        count = count_of(argument, op)
        if argument.name in names:
            found.update(range(index, index + count))
        index += count
    return frozenset(found)


def count_of(argument, op: tf.Operation) -> int:  # type: ignore[no-untyped-def]
    """Returns how many tensors an argument of an op stands for."""
    if argument.number_attr:
        return int(op.get_attr(argument.number_attr))
    if argument.type_list_attr:
        return len(op.get_attr(argument.type_list_attr))
    return 1


@functools.cache
def host_arguments(op_type: str, types: tuple[tuple[str, int], ...]) -> frozenset[str]:
    """Returns the names of the arguments that the GPU kernel for these types has in host memory."""
    given = dict(types)
    fitting = {
        kernel.device_type: kernel
        for kernel in get_registered_kernels_for_op(op_type).kernel
        if all(given.get(rule.name) in (None, *rule.allowed_values.list.type)
               for rule in kernel.constraint)
    }  # fmt: skip
    kernel = fitting.get("GPU") or fitting.get("DEFAULT")  # Default: without one of its own.
    return frozenset(kernel.host_memory_arg) if kernel else frozenset()
