"""What TensorFlow's registry of GPU kernels says of a graph: it is there without a GPU, too.

An edge of a graph that goes from device memory to host memory is a copy for which the host waits.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.framework import kernels, op_def_registry

# They have no kernel, or take and return what the functions do that they call.
CALLS = {"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase",
         "PartitionedCall", "StatefulPartitionedCall"}  # fmt: skip
WITHOUT_KERNEL = CALLS | {"Placeholder", "NoOp"}


class Node(NamedTuple):
    """An op of a graph or of a function of its library.

    Attributes:
        function: the function's name, "" for the main graph.
        definition: the op's name, type, device and attributes.
        inputs: for each data input, its node, or None for an argument of the function; and the
            place of its tensor among the outputs.
        types: the dtype of each input.
    """

    function: str
    definition: node_def_pb2.NodeDef
    inputs: list[tuple[Node | None, int]]
    types: list[tf.DType]

    @property
    def op(self):
        return self.definition.op

    @property
    def name(self):
        return f"{self.function}/{self.definition.name}" if self.function else self.definition.name

    @property
    def device(self):
        """`GPU`, `CPU`, or None for an op that has no device of its own."""
        return tf.DeviceSpec.from_string(self.definition.device).device_type


def nodes_of(graph):
    """Returns all ops of a graph and of the functions that it calls."""
    return [*nodes_in("", graph), *(
        node for name, body in bodies(graph).items() for node in nodes_in(name, body)
    )]  # fmt: skip


def bodies(graph):
    """Returns the graphs of the functions that a graph calls, by name."""
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

    found = {}
    for definition in graph.as_graph_def().library.function:
        with graph.as_default():
            found[definition.signature.name] = function_def_to_graph(
                definition, include_library_functions=True
            )
    return found


def nodes_in(function, graph):
    """Returns the ops of one graph."""
    made = {}

    def make(op):
        if op.name not in made:
            inputs = [(op_input.op, op_input.value_index) for op_input in op.inputs]
            made[op.name] = Node(function, op.node_def, [], [t.dtype for t in op.inputs])
            made[op.name].inputs.extend((make(source), place) for source, place in inputs)
        return made[op.name]

    return [make(op) for op in graph.get_operations()]


def without_gpu_kernel(nodes):
    """Returns the ops on a GPU that have no kernel for it."""
    return [node for node in nodes if node.device == "GPU" and not has_kernel(node)]


def has_kernel(node):
    """Returns whether an op has a GPU kernel for its types."""
    return node.op in WITHOUT_KERNEL or kernel_of(node) is not None


def kernel_of(node):
    """Returns the GPU kernel of an op for its types, or None."""
    types = tuple(
        (name, value.type) for name, value in sorted(node.definition.attr.items()) if value.type
    )
    return find_kernel(node.op, types)


@functools.cache
def find_kernel(op, types):
    given = dict(types)
    fitting = {
        kernel.device_type: kernel
        for kernel in kernels.get_registered_kernels_for_op(op).kernel
        if all(given.get(rule.name) in (None, *rule.allowed_values.list.type)
               for rule in kernel.constraint)
    }  # fmt: skip
    return fitting.get("GPU") or fitting.get("DEFAULT")  # Default: for whatever has no other.


def host_waits(nodes):
    """Returns pairs (from, to) of a tower's ops on its GPU: device memory to host memory."""
    return [
        (source, node)
        for node in nodes
        if node.device == "GPU"
        for place, (source, output) in enumerate(node.inputs)
        if takes_from_host(node, place) and not gives_to_host(source, output, node.types[place])
    ]


def loop_inputs_without_device(nodes):
    """Returns what loops take from ops that TensorFlow may place anywhere."""
    return [
        source
        for node in nodes
        if node.op in ("While", "StatelessWhile")
        for (source, _), dtype in zip(node.inputs, node.types, strict=True)
        if source.device is None and source.op != "Placeholder" and dtype != tf.resource
    ]


def takes_from_host(node, place):
    """Returns whether an op on a GPU takes an input from host memory."""
    if node.types[place] in (tf.resource, tf.variant):
        return False
    if node.op in CALLS:
        return node.types[place] == tf.int32 or (node.op.endswith("If") and place == 0)
    return place in places(node, "input_arg")


def gives_to_host(source, output, dtype):
    """Returns whether an op leaves an output in host memory."""
    if source.device == "CPU":
        return True
    if source.op in CALLS or source.op == "Placeholder":
        return dtype == tf.int32 or (source.op == "Placeholder" and is_step_number(source))
    return output in places(source, "output_arg")


def is_step_number(node):
    """Returns whether a placeholder is the number of the step."""
    return not node.function and not node.definition.attr["shape"].shape.dim


def places(node, arguments):
    """Returns the places of a GPU op's inputs or outputs that are in host memory."""
    kernel, found, place = kernel_of(node), set(), 0
    for argument in getattr(op_def_registry.get(node.op), arguments):
        count = 1
        if argument.number_attr:
            count = node.definition.attr[argument.number_attr].i
        elif argument.type_list_attr:
            count = len(node.definition.attr[argument.type_list_attr].list.type)
        if kernel is not None and argument.name in kernel.host_memory_arg:
            found.update(range(place, place + count))
        place += count
    return found
