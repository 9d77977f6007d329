"""A layer's call as a function of its rows, and all that comes out of a part of them."""

from __future__ import annotations

import itertools
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from towers.ground.private_apis import (
    added_losses,
    flatten_layers,
    get_keras_mask,
    global_seed_generator,
    owner_of_loss,
    set_keras_mask,
    stored_value,
)
from towers.layers.known import PLAIN, as_key
from towers.layers.scope import CallScope, captured_in, graph_of
from towers.layers.sources import CONCATENATE, Way, is_differentiable
from towers.variables.tower_scope import depends_on

CUSTOM = b"CustomGradient-"  # What TensorFlow calls those in a graph.
STOPPED = b"StopGradient"
ASSIGNMENT = re.compile(rb"Assign\w*VariableOp|ResourceScatter")
MESSAGE = re.compile(rb"Write\w*Summary|PrintV2")
# Ops that compute from the whole of the axes that they are told, and those of the last axis.
ON_AXES = re.compile("Mean|Sum|Prod|Max|Min|All|Any|EuclideanNorm|ArgMax|ArgMin|Cumsum")
ON_LAST = re.compile("TopKV2|Unique(V2|WithCounts)?|L2Loss")
LARGE = 1024.0  # A power of two, by which numbers are scaled without rounding.
TENSORS = (tf.Tensor, tf.SparseTensor, tf.RaggedTensor, tf.IndexedSlices)
ARRAYS = (*TENSORS, np.ndarray)


class Stored(NamedTuple):
    """An attribute of a layer or of an object in it that a call changed, often to tensors.

    Attributes:
        owner, name, value: whose it is, its name, and the nest.
        container: the list or the dict which the call has changed to these, if it did.
    """

    owner: Any
    name: str
    value: Any
    container: Any


class Held(NamedTuple):
    """An attribute of a layer or of an object in it.

    Attributes:
        owner, value: whose it is, and what it is.
        contents: a copy of a list or a dict, which may be changed in place; else the value.
    """

    owner: Any
    value: Any
    contents: Any


class Outcome(NamedTuple):
    """What comes out of a layer's call on a part of the rows.

    Attributes:
        outputs: the nest that the layer returned.
        masks: for each output, its Keras mask or None.
        losses: what was added with `add_loss`, each with the layer that did.
        stored: the tensors that layers keep.
        scope: holds the values that were assigned to variables.
    """

    outputs: Any
    masks: list[tf.Tensor | None]
    losses: list[tuple[keras.layers.Layer, tf.Tensor]]
    stored: list[Stored]
    scope: CallScope

    def tensors(self) -> list[tf.Tensor]:
        """Returns all tensors in a fixed order, the assigned values excepted."""
        found = list(filter(is_tensor, tf.nest.flatten(self.outputs)))
        found += [mask for mask in self.masks if mask is not None]
        found += [loss for _, loss in self.losses]
        return found + self._kept()

    def own_tensors(self) -> list[tf.Tensor]:
        """Returns those of them that the layer returned or keeps."""
        return list(filter(is_tensor, tf.nest.flatten(self.outputs))) + self._kept()

    def _kept(self) -> list[tf.Tensor]:
        kept = [leaf for one in self.stored for leaf in tf.nest.flatten(one.value)]
        return list(filter(is_tensor, kept))


class Surroundings(NamedTuple):
    """Where the numbers of a layer come from.

    Attributes:
        takes_others: whether it takes tensors that are neither arguments nor kept.
        fixed: the indices of the variables whose rows are looked up whatever the batch is.
        mixes: whether rows of one variable are looked up in both ways.
        refused: what no part of it should do: assign a `tf.Variable`, which no scope of Keras's
            holds back, or a value that does not leave its loop or branch; print, or write a
            summary; "" if there is nothing.
        has_gradient: whether something in it has a custom gradient.
        stops_gradient: whether it stops one.
        is_closed: whether it reads its own variables alone, each by the value that it is given or
            row by row.
        read: the variables of floats that it reads and that are not its Keras variables.
    """

    takes_others: bool = False
    fixed: frozenset[int] = frozenset()
    mixes: bool = False
    refused: str = ""
    has_gradient: bool = False
    stops_gradient: bool = False
    is_closed: bool = True
    read: Sequence[tf.Variable] = ()

    def sways_gradient(self) -> bool:
        """Returns whether the gradient may couple rows where no output does."""
        return self.has_gradient or self.stops_gradient

    def refusal(self) -> str:
        """Returns why the layer runs whole, the end of a sentence; "" if it may be cut."""
        if self.takes_others:
            return "computes from tensors that are not given to it"
        return "looks up rows of a table by the batch and besides" if self.mixes else self.refused


class Call:
    """A layer's call with its arguments.

    Args:
        layer: the layer.
        run: calls it with other arguments.
        args, kwargs: its arguments, nests of tensors and other values.

    Attributes:
        leaves: the flat arguments.
    """

    def __init__(self, layer: Any, run: Callable[..., Any], args: Any, kwargs: Any):
        self._layer, self._run = weakref.ref(layer), run  # A function may outlive a layer.
        self._structure = (args, kwargs)
        self.leaves = tf.nest.flatten(self._structure)

    @property
    def layer(self) -> Any:
        """The layer, for as long as it lives."""
        return self._layer()

    def key(self) -> tuple[Any, Any]:
        """Returns of what kind the call is, and which objects it takes besides tensors and arrays.

        Both tell calls of the layer apart that may need another answer.
        """
        kinds: list[Any] = []
        for leaf in self.leaves:
            if is_tensor(leaf):
                kinds.append((leaf.dtype.name, leaf.shape.rank, get_keras_mask(leaf) is None))
            elif isinstance(leaf, np.ndarray):
                kinds.append((leaf.dtype.name, leaf.ndim))
            else:
                kinds.append(leaf if isinstance(leaf, PLAIN) else type(leaf))
        objects = [one for one in self.leaves if not isinstance(one, (*ARRAYS, *PLAIN))]
        names = tf.nest.pack_sequence_as(self._structure, kinds)
        return repr(names), tuple(map(as_key, objects))

    def has_rows(self) -> bool:
        """Returns whether all tensors among the arguments are plain ones, and one has rows."""
        tensors = [leaf for leaf in self.leaves if is_tensor(leaf)]
        plain = all(isinstance(tensor, tf.Tensor) for tensor in tensors)
        return plain and any(tensor.shape.rank for tensor in tensors)

    def rows(self) -> list[int]:
        """Returns the indices of the arguments with as many rows as the first that has some."""
        sizes = {
            index: leaf.shape[0]
            for index, leaf in enumerate(self.leaves)
            if isinstance(leaf, tf.Tensor) and leaf.shape.rank
        }
        first = next(iter(sizes.values()))
        return [index for index, size in sizes.items() if size == first]

    def has_equal_rows(self, rows: Sequence[int]) -> bool:
        """Returns whether the arguments with these indices have rows of one origin.

        In a graph, a number of rows that is known is not that of a batch of any size.
        """
        return len({self.leaves[index].shape[0] for index in rows}) == 1

    def num_rows(self, rows: Sequence[int]) -> int:
        """Returns how many rows the arguments with these indices have."""
        return int(tf.shape(self.leaves[rows[0]])[0])

    def tensors(self) -> list[tf.Tensor]:
        """Returns the tensors among the arguments."""
        return [leaf for leaf in self.leaves if is_tensor(leaf)]

    def others(self, rows: Sequence[int]) -> list[tf.Tensor]:
        """Returns the tensors that each part takes whole: other arguments, and attributes."""
        found = [leaf for i, leaf in enumerate(self.leaves) if is_tensor(leaf) and i not in rows]
        for held in attributes_of(self.layer).values():
            found += filter(is_tensor, leaves_of(held.contents))
        return list({id(tensor): tensor for tensor in found}.values())

    def looks_around(self, rows: Sequence[int]) -> Surroundings:
        """Returns what a trace of the layer shows of where its numbers come from."""
        known = {id(tensor) for tensor in self.others(rows)}
        tables: dict[int, set[bool]] = {}
        variables, scope = self.layer.variables, CallScope(0)
        reads: list[tf.Operation] = []

        def call(tensors: list[tf.Tensor]) -> None:
            values = [tf.convert_to_tensor(stored_value(variable)) for variable in variables]
            for variable, value in zip(variables, values, strict=True):
                scope.state_mapping[id(variable)] = value
                reads.append(value.op)
            again = self.with_tensors(tensors, {})
            again.part({}, {}, scope)
            cut = [again.leaves[index] for index in rows]
            for table, indices in lookups_in(values[0].graph) if values else ():
                for index, value in enumerate(values):
                    if depends_on(table, [value]):
                        tables.setdefault(index, set()).add(depends_on(indices, cut))

        graph = graph_of(call, self.tensors())
        outer = captured_in(graph)
        fixed = frozenset(index for index, ways in tables.items() if ways == {False})
        mixed = any(len(ways) > 1 for ways in tables.values())
        takes_others = any(id(tensor) not in known for tensor in outer)
        text = graph.as_graph_def().SerializeToString()
        refused = scope.left_within(graph) or refusal_of(text)
        others = scope.others.keys() - {id(global_seed_generator().state)}
        is_closed = not others and uses_of(graph, variables) <= set(reads)
        gradients, read = (CUSTOM in text, STOPPED in text), others_read_in(graph, variables)
        return Surroundings(takes_others, fixed, mixed, refused, *gradients, is_closed, read)

    def mixes_rows(self, rows: Sequence[int]) -> bool:
        """Returns whether a trace shows a tensor with rows that is computed from all rows.

        Their values may not tell, as where a number is far below the one at which it is clipped.
        """
        found: list[bool] = []
        count = self.leaves[rows[0]].shape[0]

        def call(tensors: list[tf.Tensor]) -> None:
            again = self.with_tensors(tensors, {})
            outcome = again.part({}, {}, CallScope(0))
            cut = [again.leaves[index] for index in rows]
            mixed = [one for one in reductions_in(cut[0].graph, count) if depends_on(one, cut)]
            own = filter(is_differentiable, outcome.own_tensors())
            out = [one for one in own if one.shape.rank and is_of(one, count)]
            found.extend(depends_on(one, mixed) for one in out)

        graph_of(call, self.tensors())
        return any(found)

    def is_chained(self) -> bool:
        """Returns whether a trace shows a tensor that comes out and is computed from another one.

        On towers none is: each comes out by itself. One that comes out twice is one tensor, and an
        argument is itself.
        """
        found: list[bool] = []

        def call(tensors: list[tf.Tensor]) -> None:
            outcome = self.with_tensors(tensors, {}).part({}, {}, CallScope(0))
            own = {id(one): one for one in filter(is_differentiable, outcome.own_tensors())}
            out = [one for number, one in own.items() if number not in set(map(id, tensors))]
            found.extend(depends_on(one, [two]) for one, two in itertools.permutations(out, 2))

        graph_of(call, self.tensors())
        return any(found)

    def with_gradient(self, ways: Sequence[Way]) -> Call:
        """Returns the call that returns two lists of gradients, of its arguments and its weights.

        They are those of outputs with rows: from large numbers, which whatever clips them clips,
        and from numbers that are smaller by `LARGE`. Those of all weights make one vector, in which
        the rounding of one that is 0 counts nothing; tables are left out, and weights of a layer
        that computes in 16 bits.

        Args:
            ways: how each tensor that comes out becomes one.
        """

        def run(layer: Any, /, *args: Any, **kwargs: Any) -> Any:
            given = list(filter(is_differentiable, tf.nest.flatten((args, kwargs))))
            weights = [variable.value for variable in layer.trainable_variables]
            with tf.GradientTape(persistent=True) as tape:
                tape.watch([*given, *weights])
                outputs = self._run(layer, *args, **kwargs)
            tensors = filter(is_tensor, tf.nest.flatten(outputs))
            targets = [
                one for one, way in zip(tensors, ways, strict=False)
                if way.kind == CONCATENATE and is_differentiable(one)
            ]  # fmt: skip
            if any(one.dtype.size < 4 for one in targets):
                weights = []
            numbers = [one + 1.0 for one in map(tf.stop_gradient, targets)]

            def gradients(scale: float) -> list[tf.Tensor]:
                upstream = [scale * one for one in numbers]
                of_given, of_weights = tape.gradient(targets, (given, weights), upstream)
                vector = [
                    tf.cast(tf.reshape(one, [-1]), targets[0].dtype)
                    for one in of_weights
                    if isinstance(one, tf.Tensor)
                ]
                dense = [tf.convert_to_tensor(one) for one in of_given if one is not None]
                return dense + ([tf.concat(vector, 0)] if vector else [])

            return gradients(LARGE), gradients(1.0)

        return Call(self.layer, run, *self._structure)

    def with_tensors(self, tensors: Sequence[tf.Tensor], masks: dict[int, tf.Tensor]) -> Call:
        """Returns the call with other tensors as arguments, and their Keras masks by index."""
        places = [index for index, leaf in enumerate(self.leaves) if is_tensor(leaf)]
        return self._with_leaves(dict(zip(places, tensors, strict=True)), masks)

    def _with_leaves(self, others: dict[int, tf.Tensor], masks: dict[int, tf.Tensor]) -> Call:
        """Returns the call with other tensors and Keras masks as arguments, by index."""
        leaves = [others.get(index, leaf) for index, leaf in enumerate(self.leaves)]
        for index, mask in masks.items():
            set_keras_mask(leaves[index], mask)
        return Call(self.layer, self._run, *tf.nest.pack_sequence_as(self._structure, leaves))

    def whole(self) -> Any:
        """Returns what the layer returns for all rows."""
        args, kwargs = self._structure
        return self._run(self.layer, *args, **kwargs)

    def masks(self, rows: Sequence[int]) -> dict[int, tf.Tensor]:
        """Returns the Keras masks of the arguments with these indices."""
        found = {index: get_keras_mask(self.leaves[index]) for index in rows}
        return {index: mask for index, mask in found.items() if mask is not None}

    def part(
        self, rows: dict[int, tf.Tensor], masks: dict[int, tf.Tensor], scope: CallScope
    ) -> Outcome:
        """Returns what comes out of a part of the rows.

        Args:
            rows: by index, arguments in place of those of the call.
            masks: by index, their Keras masks.
            scope: the scope in which the layer reads and assigns variables.
        """
        own = self._with_leaves(rows, masks)
        before = attributes_of(self.layer, others=True)
        try:
            with scope:
                outputs = own.whole()
        finally:
            stored = list(taken_back(self.layer, before))
        masks_out = [get_keras_mask(one) for one in tf.nest.flatten(outputs) if is_tensor(one)]
        losses = [(owner_of_loss(self.layer, loss), loss) for loss in scope.losses]
        return Outcome(outputs, masks_out, losses, stored, scope)


def refusal_of(graph_def: bytes) -> str:
    """Returns what a graph does that no part of a call should; "" if there is nothing."""
    if ASSIGNMENT.search(graph_def):
        return "assigns a tf.Variable"
    return "prints, or writes a summary" if MESSAGE.search(graph_def) else ""


def reductions_in(graph: tf.Graph, count: int) -> Iterator[tf.Tensor]:
    """Yields what a trace computes from the whole of a first axis of a length."""
    operations: list[Any] = graph.get_operations()
    for operation in operations:
        shape = operation.inputs[0].shape if operation.inputs else tf.TensorShape(())
        if not shape.rank or shape[0] != count:
            continue
        axes: Any = ()
        if ON_AXES.fullmatch(operation.type):
            axes = tf.get_static_value(operation.inputs[1])
        elif ON_LAST.fullmatch(operation.type):
            axes = range(shape.rank) if operation.type == "L2Loss" else -1
        if axes is not None and 0 in np.ravel(axes) % shape.rank:
            yield from operation.outputs


def is_of(tensor: tf.Tensor, count: int) -> bool:
    """Returns whether a tensor may have some rows for each of so many."""
    return tensor.shape[0] is None or tensor.shape[0] % count == 0


def lookups_in(graph: tf.Graph) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """Yields the table and the indices of each lookup of rows in a trace."""
    operations: list[Any] = graph.get_operations()
    for operation in operations:
        if operation.type == "GatherV2":
            yield operation.inputs[0], operation.inputs[1]


def others_read_in(graph: tf.Graph, variables: Sequence[keras.Variable]) -> list[tf.Variable]:
    """Returns the variables of floats that a trace reads besides these."""
    known = set(map(id, map(stored_value, variables)))
    read: Sequence[tf.Variable] = graph.variables
    return [one for one in read if one.dtype.is_floating and id(one) not in known]


def uses_of(graph: tf.Graph, variables: Sequence[keras.Variable]) -> set[tf.Operation]:
    """Returns the operations of a trace that take variables whole, by their handles."""
    handles = {id(stored_value(variable).handle) for variable in variables}
    taken = [inner.consumers() for outer, inner in graph.captures if id(outer) in handles]
    return {op for ops in taken for op in ops if op.type != "ResourceGather"}


def is_plain(layer: Any) -> bool:
    """Returns whether Keras wrote a layer and those in it, and TensorFlow the functions in them."""
    layers = flatten_layers(layer)
    held = [vars(one).values() for one in layers if not isinstance(one, keras.Model)]
    written = [*map(type, layers), *filter(callable, itertools.chain.from_iterable(held))]
    modules = [getattr(one, "__module__", None) or "" for one in written]
    others = (keras.layers.Lambda, keras.layers.TFSMLayer)  # They run what users wrote.
    runs_others = any(isinstance(one, others) for one in layers)
    return all(one.startswith(("keras.src.", "tensorflow.")) for one in modules) and not runs_others


def settings_of(layer: Any) -> tuple[Any, ...]:
    """Returns what a plain layer, and those in it, read in a call beside tensors."""
    found: list[Any] = []
    for owner in flatten_layers(layer):
        if isinstance(owner, keras.Model):  # Its layers are all that it reads.
            continue
        losses = added_losses(owner)
        for name, value in vars(owner).items():
            if value is not losses and name != "_called":  # Which Keras sets at the first call.
                found.append((id(owner), name, tuple(map(as_key, leaves_of(value)))))
    return tuple(found)


def leaves_of(value: Any) -> Iterator[Any]:
    """Yields a value, or what a container holds in it, whatever its keys are."""
    if isinstance(value, (dict, list, tuple, set)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from leaves_of(one)
    else:
        yield value


def is_of_keras(value: Any) -> bool:
    """Returns whether an object is one of Keras's or a variable; its own attributes are asked."""
    known = isinstance(value, (keras.layers.Layer, keras.Variable, bool, int, float, str))
    named = ("keras.", "tensorflow.", "towers.compiled.")  # What `fit` keeps on a model.
    return known or value is None or type(value).__module__.startswith(named)


def is_tensor(value: Any) -> bool:
    """Returns whether a value is a tensor; a variable, which TensorFlow counts as one, is not."""
    return isinstance(value, TENSORS)


def attributes_of(layer: Any, *, others: bool = False) -> dict[tuple[int, str], Held]:
    """Returns the attributes that hold tensors: of a layer, of those in it, of objects in these.

    Args:
        layer: the layer.
        others: whether all others are wanted, too.
    """
    found = {}
    for owner in owners_in(layer):
        losses = added_losses(owner) if isinstance(owner, keras.layers.Layer) else None
        for name, value in vars(owner).items():
            if value is not losses and (others or any(map(is_tensor, leaves_of(value)))):
                found[id(owner), name] = Held(owner, value, copied(value))
    return found


def taken_back(layer: Any, before: dict[tuple[int, str], Held]) -> Iterator[Stored]:
    """Gives attributes what they held before a call, and yields what the call made of them."""
    for (key, name), (owner, value, contents) in attributes_of(layer, others=True).items():
        old = before.get((key, name))
        if is_other(contents, old):
            is_same = old is not None and old.value is value
            restore(owner, name, old)
            yield Stored(owner, name, *((contents, value) if is_same else (value, None)))


def copied(value: Any) -> Any:
    """Returns a list or a dict, and those in it, as new ones, and anything else as it is."""
    if isinstance(value, list):
        return list(map(copied, value))
    if isinstance(value, dict):
        return {key: copied(one) for key, one in value.items()}
    return value


def fill(container: Any, contents: Any) -> None:
    """Gives a list or a dict other contents, also one that Keras tracks."""
    if isinstance(container, list):
        list.__setitem__(container, slice(None), contents)
    elif isinstance(container, dict):
        dict.clear(container)
        dict.update(container, contents)


def owners_in(layer: Any) -> Iterator[Any]:
    """Yields a layer, the layers in it, and objects of a user's own that they hold."""
    rest, seen = list(flatten_layers(layer)), set()
    while rest:
        owner = rest.pop()
        if id(owner) not in seen:
            seen.add(id(owner))
            yield owner
            for one in itertools.chain.from_iterable(map(leaves_of, list(vars(owner).values()))):
                is_own = not (is_of_keras(one) or isinstance(one, (type, ModuleType)))
                if is_own and hasattr(one, "__dict__") and not callable(one):
                    rest.append(one)


def is_other(contents: Any, before: Held | None) -> bool:
    """Returns whether an attribute holds something else than before."""
    if before is None:
        return True
    old, new = list(leaves_of(before.contents)), list(leaves_of(contents))
    return len(old) != len(new) or any(a is not b for a, b in zip(old, new, strict=True))


def restore(owner: Any, name: str, before: Held | None) -> None:
    """Gives a layer the attribute that it had before a call."""
    if before is None:
        vars(owner).pop(name)
    else:
        fill(before.value, before.contents)
        vars(owner)[name] = before.value
