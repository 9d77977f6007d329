"""The scope of a tower: the values that it reads for Keras variables, and those it assigns."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.ground.hooks import Hook
from towers.ground.private_apis import (
    CondBranchFuncGraph,
    Function,
    get_default_graph,
    graphs_within,
    run_code,
)
from towers.variables.own_draws import OWN_DRAWS, draw_by_seed, fold_in
from towers.variables.shared_variables import SharedVariables, is_seed

CALL_FUNCTION = Hook(Function, "__call__")
OWN = 0  # The id of no variable.
_CURRENT: contextvars.ContextVar[TowerScope | None] = contextvars.ContextVar("scope", default=None)


class Scope(keras.StatelessScope):
    """A scope in which no variable is made, and a `tf.function` runs as its code.

    Attributes:
        name: that of the tower in error messages.
    """

    def __init__(self, name: str):
        super().__init__(collect_losses=True, initialize_variables=False)
        self.name, self._within = name, contextlib.ExitStack()

    def __enter__(self) -> Any:
        self._within.enter_context(no_new_variables(self.name))
        self._within.enter_context(CALL_FUNCTION.through(call_code))
        return super().__enter__()

    def __exit__(self, *args: object, **options: object) -> None:
        super().__exit__(*args, **options)
        self._within.close()


class TowerScope(Scope):
    """The scope in which a tower function uses the values that the tower read, and writes none.

    Args:
        tower: the tower's name in error messages.
        shared: the variables that a tower may use.
        mapping: by the variable's id, its value, and the state of each seed generator, int64 [2].
            Under `OWN`, the part's seed and how many ops drew that have a state of their own.
        inputs: the tensors that differ between parts of a batch.
        tape: the tape that records the tower function, or None.
        ambiguous: the ids of variables that must not be read, since it is not known which of their
            values is meant.

    Attributes:
        versions: by the trainable variable's id, the values that the tower function assigned to it.
    """

    def __init__(
        self,
        tower: str,
        shared: SharedVariables,
        mapping: dict[int, Any],
        inputs: Sequence[tf.Tensor] = (),
        tape: tf.GradientTape | None = None,
        ambiguous: Iterable[int] = (),
    ):
        super().__init__(tower)
        self.shared = shared
        self.state_mapping = dict(mapping)
        self.versions: dict[int, list[tf.Tensor]] = defaultdict(list)
        self._before = dict(mapping)
        self._inputs = inputs
        self._tape = tape
        self._ambiguous = set(ambiguous)
        self._num_updates: Counter[int] = Counter()

    def __enter__(self) -> Any:
        self._within.callback(_CURRENT.reset, _CURRENT.set(self))
        for op, hook in OWN_DRAWS.items():
            self._within.enter_context(hook.through(functools.partial(self._draw, op)))
        return super().__enter__()

    def get_current_value(self, variable: keras.Variable) -> Any:
        """Returns the variable's value in this tower; None if its handle is used."""
        if id(variable) in self._ambiguous:
            raise RuntimeError(
                f"{self.name} recomputes a function that uses '{variable.path}', which is used "
                "more than once in a step: keras.remat and tf.recompute_grad would not draw the "
                "same random numbers again. Use towers.steps.recompute(function) instead, or one "
                "layer for each use."
            )
        value = super().get_current_value(variable)
        if value is None:
            self._check_shared(variable)
        return value

    def add_update(self, update: tuple[keras.Variable, tf.Tensor]) -> None:
        """Stores a value instead of assigning it; an assignment has no gradient."""
        variable, value = update
        if id(variable) not in self.state_mapping:
            self._check_shared(variable)
        value = self._leaving_control_flow(variable, tf.stop_gradient(value))
        if any(variable is other for other in self.shared.trainable):
            value = self._new_version(variable, value)
        self._num_updates[id(variable)] += 1
        self.state_mapping[id(variable)] = value

    @property
    def num_versions(self) -> int:
        """How many values the tower function assigned to trainable variables."""
        return sum(map(len, self.versions.values()))

    def updated(self, variable: keras.Variable) -> tf.Tensor | None:
        """Returns the value that the tower function assigned, or None if it assigned none."""
        value = self.state_mapping.get(id(variable))
        return None if value is self._before.get(id(variable)) else value

    def before(self, variable: keras.Variable) -> Any:
        """Returns the variable's value before the tower function."""
        return self.shared.value(self._before, variable)

    def replay(self) -> TowerScope:
        """Returns the scope in which TensorFlow recomputes functions for the backward pass.

        It cannot tell which of several calls is recomputed; so it refuses what differs between
        them, such as the draws of a seed generator.
        """
        ambiguous = {one for one, number in self._num_updates.items() if number > 1}
        return TowerScope(self.name, self.shared, self._before, ambiguous=ambiguous)

    def at(self, mapping: dict[int, Any]) -> TowerScope:
        """Returns a scope of the same tower with other values."""
        return TowerScope(self.name, self.shared, mapping, self._inputs)

    def _draw(
        self, op: str, original: Callable[..., Any], /, *args: Any, **options: Any
    ) -> tf.Tensor:
        """Returns what an op draws that has a state of its own, by the seed of the tower's part.

        Within a loop it draws by its state: each turn would draw the same by the seed.
        """
        if OWN in self._ambiguous:
            raise RuntimeError(
                f"{self.name} recomputes a function that draws by `{op}`: keras.remat and "
                "tf.recompute_grad would not draw the same random numbers again. Use "
                "towers.steps.recompute(function) instead."
            )
        seed, number = self.state_mapping.get(OWN, (None, 0))
        if seed is None or not is_outside_of_loops(seed):
            return original(*args, **options)
        self.state_mapping[OWN] = seed, number + 1
        self._num_updates[OWN] += 1
        return draw_by_seed(op, fold_in(fold_in(seed, -1), number), original, *args, **options)

    def _leaving_control_flow(self, variable: keras.Variable, value: tf.Tensor) -> tf.Tensor:
        """Returns the value of a variable that was assigned, for all that follows.

        No value leaves a branch or a loop. A seed goes on after a branch, whether it is taken or
        not.
        """
        before: Any = self._before.get(id(variable))
        if not tf.is_symbolic_tensor(value) or not tf.is_symbolic_tensor(before):
            return value
        within = graphs_within(value.graph, before.graph)
        if not within:
            return value
        is_branch = all(isinstance(graph, CondBranchFuncGraph) for graph in within)
        if is_branch and is_seed(variable):
            with before.graph.as_default():
                state = self.state_mapping[id(variable)]
                return state + tf.constant([0, 1], state.dtype)  # As a generator goes on.
        place = "a branch (tf.cond)" if is_branch else "a loop"
        if is_seed(variable):
            raise RuntimeError(
                f"{self.name} draws random numbers from '{variable.path}' within a loop, where "
                "each turn would draw the same ones. Draw them before the loop, or write its turns "
                "out in Python, as keras.layers.RNN does with unroll=True."
            )
        raise RuntimeError(
            f"{self.name} assigns '{variable.path}' within {place}, and the value cannot "
            "leave it. Return the value from there, and assign it afterwards."
        )

    def _new_version(self, variable: keras.Variable, value: tf.Tensor) -> tf.Tensor:
        """Returns a value assigned to a trainable variable, as a source of its gradient."""
        if depends_on(value, self._inputs):
            raise RuntimeError(
                f"{self.name} assigns the trainable variable '{variable.path}'. A tower changes "
                "trainable variables through gradients only, or to a value that follows from "
                "variables alone, as SpectralNormalization does; make it `trainable=False`."
            )
        if self._tape is not None:
            self._tape.watch(value)
        self.versions[id(variable)].append(value)
        return value

    def _check_shared(self, variable: keras.Variable) -> None:
        """Raises an error for a variable that is not one of the shared ones."""
        if self.shared.is_used_by_handle(variable):
            return
        if variable.name == "rnn_state":
            raise stateful_error(variable.path)
        if variable.name == "seed_generator_state":
            raise RuntimeError(
                f"{self.name} draws random numbers from '{variable.path}', which is not one of "
                "the shared variables. The generator is missing from the `variables` given to the "
                "step, or is made in the tower function. Make it in the layer's __init__, or once "
                "outside of the tower function."
            )
        raise RuntimeError(
            f"{self.name} uses the variable '{variable.path}' of shape "
            f"{tuple(variable.shape)}, which is not one of the shared variables. Either "
            "the tower function makes it (make layers and metrics once, outside of the tower "
            "function), or it is missing from the `variables` given to the step."
        )


def current_scope() -> TowerScope | None:
    """Returns the scope of the tower that is being traced, or None outside of a tower."""
    return _CURRENT.get()


def call_code(original: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Returns what the code of a `tf.function` does: a trace would keep the values of one tower."""
    if is_of(function.python_function, "tensorflow."):  # Some of these need a graph of their own.
        return original(function, *args, **kwargs)
    return run_code(function, *args, **kwargs)


def is_of(value: Any, *modules: str) -> bool:
    """Returns whether a class or function was written in one of the modules, which begin so."""
    return (getattr(value, "__module__", None) or "").startswith(modules)


def depends_on(value: tf.Tensor, tensors: Iterable[tf.Tensor]) -> bool:
    """Returns whether a tensor of a graph follows from one of the tensors."""
    sources = {id(tensor) for tensor in tensors}
    seen, waiting = set(), [value]
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in sources:
            return True
        if tensor.op not in seen:
            seen.add(tensor.op)
            waiting.extend(tensor.op.inputs)
    return False


@contextlib.contextmanager
def no_new_variables(tower: str) -> Iterator[None]:
    """The scope in which making a `tf.Variable` is an error that names it and the tower."""

    def refuse(_: Callable[..., Any], **options: Any) -> None:
        raise new_variable_error(tower, options.get("name") or "Variable")

    with tf.variable_creator_scope(refuse):
        yield


def stateful_error(path: str = "") -> ValueError:
    """Returns the error for a recurrent layer that keeps a state for each row of a batch."""
    received = f" Received '{path}'." if path else ""
    return ValueError(
        "A recurrent layer with stateful=True keeps a state for each row of a batch, of which a "
        f"tower sees only some.{received} Leave stateful out, take and return the state in the "
        "tower function, and pass StepOptions(carried=towers.Carried(specs, num_rows)): it goes on "
        "from batch to batch."
    )


def new_variable_error(tower: str, name: str) -> RuntimeError:
    """Returns the error for a tower that makes a variable."""
    return RuntimeError(
        f"{tower} would create the variable '{name}'. Towers share variables and own none: make "
        "layers and variables once, outside of the tower function, under "
        "`placement.scope()`."
    )


def is_outside_of_loops(seed: tf.Tensor) -> bool:
    """Returns whether the current graph is that of a seed, or one of a branch in it."""
    if not tf.is_symbolic_tensor(seed):
        return True
    within = graphs_within(get_default_graph(), seed.graph)
    return all(isinstance(graph, CondBranchFuncGraph) for graph in within)
