"""Variable uses: what a traced graph does with each variable, within its branches and loops too."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import keras
import tensorflow as tf

from towers.ground.private_apis import NameAttrList, NodeDef

CAPTURED = "captured by a custom gradient"
BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")  # Their first input is the condition.
CALLS = (*BRANCHES, "While", "StatelessWhile", "PartitionedCall", "StatefulPartitionedCall")
Consumers = dict[str, list[tuple[NodeDef, int]]]


class Uses:
    """The uses of a graph's resources, read from its definition.

    A use is the type of an op that takes the resource, in the graph itself or in a branch, a loop
    or a function that it calls, or `CAPTURED`: a function with a custom gradient, such as
    `tf.recompute_grad`, takes the variable's value from around it.

    Args:
        graph: the graph of a `tf.function`.
    """

    def __init__(self, graph: tf.Graph):
        self._names = {id(outer): inner.op.name for outer, inner in graph.captures}
        definition = graph.as_graph_def()
        self._main = consumers_of_nodes(definition.node)
        self._functions = {
            function.signature.name: function for function in definition.library.function
        }
        self._consumers: dict[str, Consumers] = {}

    def of_variable(self, variable: keras.Variable) -> set[str]:
        """Returns the uses of a variable's handle."""
        name = self._names.get(id(variable.value.handle))
        return set() if name is None else set(self.of(name))

    def consumers(self, variable: keras.Variable) -> set[str]:
        """Returns the types of the ops of the graph itself that take a variable's handle."""
        name = self._names.get(id(variable.value.handle))
        return set() if name is None else {node.op for node, _ in self._main[name]}

    def of(self, name: str, nodes: str = "") -> Iterator[str]:
        """Yields the uses of the resource that a node of the graph itself holds.

        Args:
            name: the node's name.
            nodes: a regular expression for the beginning of the names of the nodes that count.
        """
        matching = [pair for pair in self._main[name] if re.match(nodes, pair[0].name)]
        return self._uses_by(self._main, matching)

    def _uses_by(self, consumers: Consumers, nodes: Iterable[tuple[NodeDef, int]]) -> Iterator[str]:
        for node, position in nodes:
            if node.op in CALLS:
                yield from self._uses_in_calls(node, position - (node.op in BRANCHES))
            elif node.op == "Identity":
                yield from self._uses_by(consumers, consumers[node.name])
            elif node.op == "ReadVariableOp" and is_captured(consumers, node):
                yield CAPTURED
            else:
                yield node.op

    def _uses_in_calls(self, node: NodeDef, position: int) -> Iterator[str]:
        """Yields the uses in the functions that a node calls with its argument at a position."""
        for name in functions_of(node):
            function = self._functions[name]
            if name not in self._consumers:
                self._consumers[name] = consumers_of_nodes(function.node_def)
            argument = function.signature.input_arg[position].name
            consumers = self._consumers[name]
            yield from self._uses_by(consumers, consumers[argument])
        if node.op.endswith("PartitionedCall"):
            yield node.op


def consumers_of_nodes(nodes: Iterable[NodeDef]) -> Consumers:
    """Returns each node (or argument) by name, with the nodes that take it and at which input."""
    consumers: Consumers = defaultdict(list)
    for node in nodes:
        for position, source in enumerate(node.input):
            if not source.startswith("^"):
                consumers[source.split(":")[0]].append((node, position))
    return consumers


def is_captured(consumers: Consumers, read: NodeDef) -> bool:
    """Returns whether a read gives a custom gradient a variable that is not its argument.

    TensorFlow's `IdentityN` of a custom gradient takes its results, its arguments and the
    variables from around it, and reads only these itself, within its own scope.
    """
    return any(
        node.op == "IdentityN"
        and node.attr["_gradient_op_type"].s.startswith(b"CustomGradient")
        and read.name.startswith(f"{node.name}/")
        for node, _ in consumers[read.name]
    )


def functions_of(node: NodeDef) -> Iterator[str]:
    """Yields the names of the functions that a node calls."""
    for value in node.attr.values():
        functions: list[NameAttrList] = [*value.list.func]
        if value.HasField("func"):
            functions.append(value.func)
        yield from (function.name for function in functions)
