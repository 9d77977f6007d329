"""A step's graph as TensorBoard's page Graphs shows it: a box for each tower with all that it does.

The page makes a box of each scope, and moves boxes with many connections aside once there are 15 or
more at the top (`minNodeCountForExtraction` in TensorBoard's graph plugin). TensorFlow names
backward passes `gradient_tape/tower_0/...`, inputs and outputs have no scope, and each loop brings
functions that would fill the page. So names are changed in what is written; the graph that runs
keeps its own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection
from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from towers.ground.private_apis import GraphDef

BACKWARD = re.compile(r"gradient_tape/(tower_\d+/)(.+)")
INPUTS, RESULTS, FUNCTIONS = "inputs", "results", "functions"
RANDOM, OTHER = "random", "other"
IN_TOWER = re.compile(r"tower_\d+/[^/]+")
OF_OPS = re.compile(r"(TensorArray|zeros|ones)\w*")  # Functions of TensorFlow that make a scope.
SOURCES = ("Placeholder", "PlaceholderWithDefault")
AGAIN = re.compile(rf"{RESULTS}_\d+/")  # A scope that was entered again.


def box_graph(graph: tf.Graph) -> GraphDef:
    """Returns the definition of a graph with few boxes at the top.

    The backward pass of a tower is `backward` in its box, and what has no scope there is in
    `random` or `other`; inputs are in `inputs`, whatever else has no scope is in `results`, and
    functions are in `functions`, beside the main graph.
    """
    definition = graph.as_graph_def()
    names = {node.name: boxed_name(node.name, node.op) for node in definition.node}
    alone = {name for name in names.values() if IN_TOWER.fullmatch(name)}
    names = {node: without_loose(name, alone) for node, name in names.items()}
    if len(set(names.values())) < len(names):
        return definition  # Names of a user's own that are in the way.
    for node in definition.node:
        node.name = names[node.name]
        inputs = [boxed_input(name, names) for name in node.input]
        del node.input[:]
        node.input.extend(inputs)
    box_functions(definition)
    return definition


def boxed_name(name: str, kind: str) -> str:
    """Returns the name of a node with its box.

    >>> boxed_name("gradient_tape/tower_1/dense/MatMul", "MatMul")
    'tower_1/backward/dense/MatMul'
    >>> boxed_name("Identity_3", "Identity")
    'results/Identity_3'
    """
    if found := BACKWARD.fullmatch(name):
        return f"{found[1]}backward/{found[2]}"
    if "/" not in name:
        return f"{INPUTS if kind in SOURCES else RESULTS}/{name}"
    return f"{RESULTS}/{name}" if AGAIN.match(name) else name


def without_loose(name: str, alone: Collection[str]) -> str:
    """Returns a name with a box around what has no scope in a tower.

    Args:
        name: of a node.
        alone: the nodes without a scope in their tower, which may have constants below them.

    >>> without_loose("tower_1/strided_slice_2/stack", ["tower_1/strided_slice_2"])
    'tower_1/other/strided_slice_2/stack'
    >>> without_loose("tower_1/stateless_random_uniform/shape", [])
    'tower_1/random/stateless_random_uniform/shape'
    >>> without_loose("tower_1/encoder/MatMul", [])
    'tower_1/encoder/MatMul'
    """
    tower, first, *_ = [*name.split("/"), ""]
    if not IN_TOWER.fullmatch(f"{tower}/{first}"):
        return name
    is_random = first.lower().startswith("stateless") and "while" not in first.lower()
    if is_random or f"{tower}/{first}" in alone or OF_OPS.fullmatch(first):
        box = RANDOM if is_random else OTHER
        return f"{tower}/{box}/{name.removeprefix(f'{tower}/')}"
    return name


def boxed_input(name: str, names: dict[str, str]) -> str:
    """Returns an input such as `^node` or `node:1` with the new name of its node."""
    mark = "^" if name.startswith("^") else ""
    node, colon, output = name.removeprefix("^").partition(":")
    return f"{mark}{names.get(node, node)}{colon}{output}"


def box_functions(definition: GraphDef) -> None:
    """Renames the functions of a definition, and what calls them, in place."""
    functions = definition.library.function
    names = {one.signature.name: f"{FUNCTIONS}/{one.signature.name}" for one in functions}
    for one in functions:
        one.signature.name = names[one.signature.name]
    for gradient in definition.library.gradient:
        gradient.function_name = names.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = names.get(gradient.gradient_func, gradient.gradient_func)
    for node in itertools.chain(definition.node, *(one.node_def for one in functions)):
        node.op = names.get(node.op, node.op)
        for value in node.attr.values():
            for called in (value.func, *value.list.func):
                if called.name in names:  # To read `func` does not set it.
                    called.name = names[called.name]
