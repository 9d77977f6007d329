"""Layers on towers: within a scope, each outermost call of a layer is cut by rows over devices.

What surrounds the calls runs as it is written, once, on the whole batch: train steps, tapes,
losses, metrics, optimizers, loops.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import keras
import numpy as np
import tensorflow as tf

from towers.devices.placement import check_devices, check_present, tower_devices
from towers.ground.arguments import check_choice
from towers.ground.hooks import Hook
from towers.ground.private_apis import (
    CompileLoss,
    VariableWatcher,
    added_losses,
    as_result,
    flatten_layers,
    in_stateless_scope,
    is_compiled,
    order_of_gradients,
    run_code,
    twin_of,
)
from towers.layers.asking import CUT, INSIDE, WHOLE, Answer, ask, not_cut, summary
from towers.layers.companions import logits_kept, logits_left
from towers.layers.gradient import Towers
from towers.layers.held import (
    attributes_of,
    counts_kept,
    is_plain,
    is_tensor,
    put_back,
    settings_of,
    switches_of,
)
from towers.layers.known import Known
from towers.layers.part import Call, Outcome
from towers.layers.plain import needs_trace
from towers.layers.reads import tapes_counted
from towers.layers.rows import CONCATENATE, Cut, Way, even_cut, is_differentiable, parts_of
from towers.layers.scope import CallScope
from towers.layers.told import Told
from towers.layers.values import Values, values_on_towers
from towers.variables.tower_scope import CALL_FUNCTION, is_of

CALL_LAYER = Hook(keras.Operation, "__call__")
COMPILED_LOSSES = Hook(CompileLoss, "call")
MEAN_METRIC = Hook(keras.metrics.Mean, "update_state")
OPTIONAL = Hook(tf.experimental.Optional, "from_value")
REPEATED_ROWS = ("sum", "keras")
CHANGES = "changes its attributes in its calls"
# What TensorFlow says of what may not run without a graph, and the remedy.
ONLY_IN_GRAPHS = {
    "tf.gradients is not supported": "Use tf.GradientTape.",
    "don't have the same nested structure": "Let the body of a tf.while_loop return the structure "
    "of its variables, such as a list for a list.",
}
MOST = 8  # So many states of its switches a layer is asked in.
TAKEN, TWINS = "_is_taken_in_parts", "_twins_on_towers"  # Attributes of tensors and functions.


@contextlib.contextmanager
def layers_on(devices: int | Sequence[str], *, repeated_rows: str = "sum") -> Iterator[LayerCalls]:
    """The scope in which the layers of any Keras code run on towers.

    Each outermost call of a layer is cut by rows, computed by the towers and joined; so is its
    gradient. What surrounds the calls runs as it is written. A layer that couples the rows of a
    batch runs whole on the first device; a line says which do.

    Args:
        devices: one device per tower, in the order of the rows, or their number, as in
            `towers.fit`.
        repeated_rows: what an optimizer gets for a row of an `Embedding` that a batch looks up
            several times: `sum`, the sum of its gradients, as everywhere in `towers`; `keras`, each
            by itself, which Keras's Adam, Adagrad and RMSprop square one by one.

    Raises:
        ValueError: an argument is wrong.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
    >>> model.layers[0].kernel.assign([[1.0], [1.0]])  # doctest: +ELLIPSIS
    <...>
    >>> with layers_on(["/CPU:0", "/CPU:0"]):
    ...     print(model(tf.constant([[1.0, 2.0], [3.0, 4.0]])).numpy().tolist())
    [[3.0], [7.0]]
    2 towers run sequential
    """
    devices = tower_devices(devices)
    check_devices(devices)
    check_present(devices)
    check_choice("repeated_rows", repeated_rows, REPEATED_ROWS)
    calls = LayerCalls(devices, repeated_rows)
    with calls.scope():
        yield calls


class OtherTensorsError(Exception):
    """A call that takes or returns other tensors than when its layer was asked."""


class LayerCalls:
    """How the layers of a scope are called.

    A function is called for the first time without a graph, and each layer in it is asked whether
    it treats rows apart. Later calls run a graph of its own, in which the answers hold: what was
    traced before has uncut layers, and nothing of ours stays in it.

    Args:
        devices, repeated_rows: as in `layers_on`.
        trains: whether gradients are asked for, and what is otherwise in a training is told.
        owner: the model whose steps they are, if it is known.

    Attributes:
        told: what is printed of how layers are called.
    """

    def __init__(
        self,
        devices: Sequence[str],
        repeated_rows: str = "sum",
        *,
        trains: bool = True,
        owner: keras.Model | None = None,
    ):
        self._owner = (lambda: None) if owner is None else weakref.ref(owner)
        self.devices, self.repeated_rows = tuple(devices), repeated_rows
        self.trains, self.told = trains, Told(self.devices, repeated_rows)
        self._answers, self._functions = Known(), Known()  # Of a layer, each by the call's key.
        self._values = Known()  # The layer of a loss or a metric.
        self._is_first_call, self._joined = False, 0  # The bytes that a first call joins.
        self._counting: set[int] = set()  # The ids of layers whose counts that call keeps.
        self._counts = contextlib.ExitStack()

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """The scope in which the layers and the functions of this thread are called so.

        Where no function was called, it tells at its end how the layers were.
        """
        with (
            CALL_LAYER.through(self.call),
            CALL_FUNCTION.through(self.call_function),
            values_on_towers(self._call_values, self.devices, self._values),
            logits_kept(lambda: self._is_first_call or not tf.executing_eagerly()),
            tapes_counted(),
        ):
            yield
        self.told.tell()

    def call_function(self, original: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Returns what a `tf.function` returns; a twin of it is called."""
        is_data = is_of(function.python_function, "tensorflow.", "towers.compiled.data")
        if is_data or in_stateless_scope():
            return original(function, *args, **kwargs)
        if self._is_first_call:
            return run_code(function, *args, **kwargs)
        twins = vars(function).setdefault(TWINS, WeakKeyDictionary())  # They live as long as it.
        is_new = self not in twins
        self.told.leaves_xla |= is_new and is_compiled(function)
        if is_new and tf.executing_eagerly():
            results = self._call_first(function, *args, **kwargs)
            twins[self] = twin_of(function)
        else:
            if is_new:
                twins[self] = twin_of(function)
            results = original(twins[self], *args, **kwargs)
        if tf.executing_eagerly():
            self.told.tell()
        return results

    def _call_first(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Returns what a `tf.function` returns without a graph, in which layers can be asked.

        A model that is not built is traced before, as on one device, where a trace that makes
        variables is dropped: a step may take the list of them before it calls a layer.
        """
        losses, owner = None if knows_rows(args) else as_in_graph, self._owner()
        if owner is not None:
            self._keep_counts(owner)
            if not all(one.built for one in flatten_layers(owner)):
                with alone():
                    twin_of(function).get_concrete_function(*args, **kwargs)
        self._is_first_call, self._joined = True, 0
        try:
            with (
                OPTIONAL.through(of_values),
                COMPILED_LOSSES.through(losses),
                VariableWatcher() as watcher,
            ):
                results = run_code(function, *args, **kwargs)
        except (RuntimeError, TypeError) as error:
            remedies = (remedy for text, remedy in ONLY_IN_GRAPHS.items() if text in str(error))
            if (remedy := next(remedies, None)) is None:
                raise
            raise ValueError(
                "Your code fails without a graph, in which the first step on towers runs, since "
                f"layers are asked in it: {summary(error)}. {remedy}"
            ) from error
        finally:
            self._is_first_call = False
            self._counts.close()  # The trace that follows is the first, as it is on one device.
            self._counting.clear()
        self.told.note_used(watcher.watched_variables())
        self.told.most_joined = max(self.told.most_joined, self._joined)
        return results

    def _keep_counts(self, layer: keras.layers.Layer) -> None:
        """Keeps a layer's counts from its first call to the end of a function's first call."""
        if id(layer) not in self._counting:
            self._counting.add(id(layer))
            self._counts.enter_context(counts_kept(layer))

    def call(self, original: Any, layer: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Returns what a layer returns, its rows on towers if it treats them apart."""
        leaves = keras.tree.flatten((args, kwargs))
        is_symbolic = any(isinstance(leaf, keras.KerasTensor) for leaf in leaves)
        if is_symbolic or in_stateless_scope() or not isinstance(layer, keras.layers.Layer):
            return original(layer, *args, **kwargs)
        call = Call(layer, original, args, kwargs)
        if self._is_first_call and layer.built:
            self._keep_counts(layer)
        answer = self._answer(call)
        if answer.way == INSIDE:
            return call.whole()
        with contextlib.suppress(OtherTensorsError):
            if answer.way == CUT and tf.executing_eagerly() and not self._is_first_call:
                return self._call_without_graph(call, answer)
            if answer.way == CUT:
                return put_together(*self._cut(call, answer))
        with alone():
            return call.whole()

    def _call_values(self, run: Any, layer: Values, *pair: Any) -> Any:
        """Returns the values of a loss or a metric; without a graph they are not worth a cut."""
        if tf.executing_eagerly() and not self._is_first_call:
            return run(layer, *pair)
        return self.call(run, layer, *pair)

    def _answer(self, call: Call) -> Answer:
        """Returns how a layer is called; it is asked when it is first called without a graph."""
        kind, objects = call.key()
        switches = switches_of(call.layer)
        key, known = ((switches, kind, self.trains), objects), self._answers.of(call.layer, dict)
        if key not in known:
            is_restless = len({switches, *(like[0] for like, _ in known)}) > MOST
            can_be_asked = call.layer.built and tf.executing_eagerly() and not is_restless
            if not can_be_asked or call.has_single_rows():
                alike = [answer for (like, _), answer in known.items() if like == key[0]]
                return self._leave(call, alike, is_restless=is_restless)
            traces = needs_trace(call.layer, self.repeated_rows)
            known[key] = ask(call, self.devices, traces=traces, trains=self.trains)
            if not isinstance(call.layer, Values):
                self.told.note(call.layer, known[key], trains=self.trains)
        return known[key]

    def _leave(self, call: Call, alike: Sequence[Answer], *, is_restless: bool) -> Answer:
        """Returns the answer for a layer that cannot be asked now; those in it may be cut.

        Calls are alike that are of its kind, with other objects as arguments.
        """
        if alike and all(one == alike[0] for one in alike):
            return alike[0]
        is_single = tf.executing_eagerly() and call.has_single_rows()
        when = "with one row in each argument" if is_single else "within a graph"
        answer = not_cut(call, CHANGES if is_restless else f"was first called {when}")
        if answer.way == WHOLE and not isinstance(call.layer, Values):
            self.told.note_unasked(call.layer, answer.reason)
        return answer

    def _call_without_graph(self, call: Call, answer: Answer) -> Any:
        """Returns what a layer returns without a graph; instead of Keras's own, calls a function.

        Layers that users wrote may read anything, each time something else. A function has one
        gradient, which has none of its own.
        """
        if call.rows != answer.rows or call.num_rows < len(self.devices):
            with alone():
                return call.whole()
        order = order_of_gradients(call.tensors(), call.layer.trainable_variables)
        has_arrays = any(isinstance(leaf, np.ndarray) for leaf in call.leaves)
        if order > 1 or has_arrays or attributes_of(call.layer) or not is_plain(call.layer):
            return put_together(*self._cut(call, answer))
        functions = self._functions.of(call.layer, dict)
        key = (call.key(), settings_of(call.layer), order)
        if key not in functions:
            functions[key] = self._compile(call, answer, records=order > 0)
        if functions[key] is None:
            return put_together(*self._cut(call, answer))
        function, outcome = functions[key]
        tensors = [*call.tensors(), *call.companions().values()]
        with alone():
            joined = function(tensors)
        return put_together(outcome, joined)

    def _compile(self, call: Call, answer: Answer, *, records: bool) -> tuple[Any, Outcome] | None:
        """Returns the function of a call's tensors and companions, and what came out of its trace.

        There is none for a layer that adds losses or keeps tensors, nor for the gradients of
        several outputs: that of a function has a 0 where that of an unused one has none.
        """
        outcomes: list[Outcome] = []

        def cut(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
            outcome, joined = self._cut(call.with_tensors(tensors), answer, for_function=records)
            outcomes.append(outcome)
            return joined

        function = tf.function(cut, autograph=False, reduce_retracing=True)
        with alone(), logits_left():
            function.get_concrete_function([*call.tensors(), *call.companions().values()])
        outcome = outcomes[0]
        outputs = list(filter(is_differentiable, tf.nest.flatten(outcome.outputs)))
        if outcome.losses or outcome.stored or (records and len(outputs) > 1):
            return None
        return function, outcome

    def _cut(
        self, call: Call, answer: Answer, *, for_function: bool = False
    ) -> tuple[Outcome, list[tf.Tensor]]:
        """Returns what came out of the first tower, and its tensors of all towers."""
        needs_graph = answer.is_synchronized and tf.executing_eagerly()
        rows = [call.leaves[index] for index in answer.rows]
        # In a graph, a number of rows that is known is not that of a batch of any size.
        if needs_graph or len({one.shape[0] for one in rows}) > 1:
            raise OtherTensorsError
        call.rows = answer.rows
        given: dict[int, Any] = {}  # By the ids of their parts on the first tower.

        def part(own: list[tf.Tensor], scope: CallScope) -> Outcome:
            if not given:  # After the rows comes what goes with them.
                given.update((id(one), row) for one, row in zip(own, rows, strict=False))
            return call.part(own).outcome(scope)

        cut, sums_rows = self._rows(rows), self.repeated_rows == "sum"
        towers = Towers(cut, self.devices[0], sums_rows=sums_rows, for_function=for_function)
        variables = call.layer.variables
        tables = {id(variables[index]) for index in answer.fixed}
        variables = [] if answer.has_gradient else variables
        others = list(filter(is_differentiable, call.others()))
        outcomes = towers.run(part, call.cut(), variables, others, tables)
        columns = list(zip(*(outcome.tensors() for outcome in outcomes), strict=True))
        if len(columns) != len(answer.ways):
            raise OtherTensorsError
        joined = towers.join(columns, answer.ways)
        if self._is_first_call and tf.executing_eagerly():
            self._count(rows, joined[: len(outcomes[0].own_tensors())])
        set_rows(joined, answer.ways, rows[0].shape[0])
        # What comes out twice is one tensor, and an argument is itself.
        pairs = zip(outcomes[0].tensors(), joined, strict=True)
        return outcomes[0], [given.setdefault(id(tensor), one) for tensor, one in pairs]

    def _count(self, rows: Sequence[tf.Tensor], joined: Sequence[tf.Tensor]) -> None:
        """Counts what a call joins, unless another call takes it in parts: then nothing travels."""
        for one in rows:
            if parts_of(one, self.devices) is not None and not hasattr(one, TAKEN):
                setattr(one, TAKEN, True)
                self._joined -= num_bytes(one)
        self._joined += sum(map(num_bytes, joined))

    def _rows(self, rows: Sequence[tf.Tensor]) -> Cut:
        """Returns how the rows of a call are cut: as those of an argument that towers made."""
        known = (parts_of(one, self.devices) for one in rows)
        return next((one.cut for one in known if one), None) or even_cut(rows[0], self.devices)


def set_rows(joined: Sequence[tf.Tensor], ways: Sequence[Way], count: int | None) -> None:
    """Gives tensors with rows the number of them, if that of the call's rows is known."""
    for one, way in zip(joined, ways, strict=True):
        if way.kind == CONCATENATE and way.multiple is not None and count is not None:
            one.set_shape([count * way.multiple, *one.shape[1:]])


def knows_rows(args: Sequence[Any]) -> bool:
    """Returns whether a graph of a function with these arguments knows how many rows there are."""
    specs = [tf.nest.flatten(getattr(one, "element_spec", ())) for one in args]
    shapes = [getattr(spec, "shape", None) for each in specs for spec in each]  # None has none.
    return any(shape is not None and shape.rank and shape[0] for shape in shapes)


def as_in_graph(original: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Computes what `compile(loss=)` became as in a graph that does not know the number of rows.

    Where it is known, it weighs the mean of each of several losses.
    """

    def update(original: Any, metric: Any, values: Any, sample_weight: Any = None) -> Any:
        return original(metric, values)

    with MEAN_METRIC.through(update):
        return original(*args, **kwargs)


def of_values(original: Any, nest: Any) -> Any:
    """Returns an optional of what a step returned, which without a graph may hold no variables."""
    return original(tf.nest.map_structure(as_result, nest))


def num_bytes(tensor: tf.Tensor) -> int:
    """Returns the size of a tensor that has a value."""
    return int(tensor.dtype.size * tensor.shape.num_elements())


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """The scope in which layers run whole."""
    with CALL_LAYER.through(None), CALL_FUNCTION.through(None):
        yield


def put_together(outcome: Outcome, joined: Sequence[tf.Tensor]) -> Any:
    """Returns the outputs of a whole call, and puts the rest of it where the layer had it.

    The outcome is that of the first tower; its tensors are joined of all towers.
    """
    tensors = iter(joined)
    outputs = refilled(outcome.outputs, tensors)
    for one in outcome.stored:
        put_back(one._replace(contents=refilled(one.contents, tensors)))
    own = filter(is_tensor, tf.nest.flatten(outputs))
    for output, companions in zip(own, outcome.companions, strict=True):
        for name in companions:
            setattr(output, name, next(tensors))
    for owner, _ in outcome.losses:
        added_losses(owner).append(next(tensors))
    return outputs


def refilled(nest: Any, tensors: Iterator[tf.Tensor]) -> Any:
    """Returns a nest with the next tensors in place of its own."""
    leaves = [next(tensors) if is_tensor(leaf) else leaf for leaf in tf.nest.flatten(nest)]
    return tf.nest.pack_sequence_as(nest, leaves)
