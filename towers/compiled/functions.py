"""What Keras's `fit` and `evaluate` call for the batches of a call: the towers' own steps."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.compiled.checks import NeedsLayersError
from towers.compiled.data import Data
from towers.compiled.epoch_batches import EpochData, ShardIterator
from towers.compiled.kept import kept
from towers.compiled.setting import compiles, key_of, prepare, steps_per_call
from towers.compiled.together import Together
from towers.compiled.tower_function import compiled_tower_fn, updated_logs
from towers.devices.placement import Placement
from towers.ground.private_apis import flatten_layers, learning_rate_object
from towers.layers.held import same_start
from towers.layers.told import TABLES
from towers.loop.updates import FiniteCheck
from towers.optimizers.fused import optimizers_in
from towers.saving.checkpoint_files import Groups
from towers.step.builder import TrainStep, build_train_step
from towers.step.evaluation import EvaluationStep, build_evaluation_step
from towers.step.options import FixedLossScale, LossScale, StepOptions
from towers.step.results import StepResults
from towers.variables.find_variables import NotCompilableError
from towers.variables.shared_variables import is_seed

TRAIN, TEST = "train_function", "test_function"


class TowersFunction:
    """What Keras calls as its `train_function` or `test_function`.

    It is given an iterator over shards of ours. With another one, such as that of an `evaluate`
    in a callback, it is Keras's own.

    Args:
        model, name: a compiled model, and `TRAIN` or `TEST`.
        build: returns the step, which is built by the first call.
        finite: checks each update; None where there are none.

    Attributes:
        of_keras: Keras's own, or None.
        first: the number of the first step of the epoch.
        made: the results of the updates of the last call.
        seconds, waits: the time of one of these, as in `StepReport`.
    """

    def __init__(
        self,
        model: keras.Model,
        name: str,
        build: Callable[[], TrainStep | EvaluationStep],
        finite: FiniteCheck | None = None,
    ):
        self._build, self.first, self._finite = build, 0, finite
        self.build = functools.cache(build)
        self.made: Sequence[StepResults] = ()
        self.seconds, self.waits = 0.0, [0.0]
        self._model, self._name, self.of_keras = model, name, getattr(model, name)

    def __call__(self, iterator: Any) -> dict[str, tf.Tensor]:
        """Runs the step on the next shards, or on so many as one call has; returns the logs.

        Raises:
            StopIteration: no shards are left.
            ValueError: there are none to evaluate.
            NonFiniteGradientError: an update before the last one, which need not be done, had a
                gradient that was not finite.
        """
        if not isinstance(iterator, ShardIterator):
            return self._function_of_keras()(iterator)
        started, number = time.perf_counter(), self.first + iterator.taken
        step: Any = self.build()
        if (count := iterator.next_count()) == 0:
            raise StopIteration
        source = iterator.in_graph or self._next(iterator)
        if iterator.per_call > 1:
            if self._finite is not None:  # The results are here, and a call makes many updates.
                self._finite.check()
            self.made = step.several(source, number, count)
        else:
            self.made = [(step.read if iterator.in_graph else step)(source, number)]
        if self._finite is not None:
            for step_number, results in enumerate(self.made, number):
                self._finite.add(step_number, results)
        iterator.taken += len(self.made)
        self.seconds = (time.perf_counter() - started) / len(self.made)
        self.waits = [wait / len(self.made) for wait in iterator.waits]
        return step.also

    def _next(self, iterator: ShardIterator) -> Any:
        shards = next(iterator, None)
        if shards is None and iterator.taken == 0 and self._name == TEST:
            raise ValueError("There is nothing to evaluate: the data has no examples.")
        if shards is None:
            raise StopIteration
        return shards

    def follow(self) -> None:
        """Is built anew where a callback had Keras make its own anew, for what has changed."""
        if self.is_replaced:
            found = getattr(self._model, self._name)
            self.of_keras, self.build = found, functools.cache(self._build)
            setattr(self._model, self._name, self)

    @property
    def is_replaced(self) -> bool:
        """Whether a callback has compiled the model since it was followed."""
        return getattr(self._model, self._name) is not self

    def _function_of_keras(self) -> Callable[[Any], Any]:
        if self.of_keras is None:
            getattr(keras.Model, f"make_{self._name}")(self._model, force=True)
            self.of_keras = getattr(self._model, self._name)
            setattr(self._model, self._name, self)
        return self.of_keras

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """The scope in which Keras calls it."""
        setattr(self._model, self._name, self)
        try:
            yield
        finally:
            if not self.is_replaced:  # Else a callback has compiled the model.
                setattr(self._model, self._name, self.of_keras)


class OnTowers:
    """A compiled model whose training and evaluation are the towers' own steps.

    Attributes:
        devices, exchange: the towers' devices, and how their gradients are summed.
        together: the processes that train it.
        functions: what Keras calls in the scope, by name.
        is_quiet: whether nothing is told of the step.
    """

    def __init__(self, model: keras.Model, placement: Placement, together: Together):
        self.devices, self.exchange = placement.devices, placement.exchange
        self.together = together
        self.functions: dict[str, TowersFunction] = {}
        self.is_quiet = False
        self._model, self._placement = model, placement
        self._finite = FiniteCheck(together.processes.first_tower(len(self.devices)))

    def training(self, data: EpochData, options: StepOptions, *, told: bool = False) -> EpochData:
        """Returns data as shards, and makes the step that trains on it.

        Args:
            options: of the step, but for what `compile` says: the loss scale, and whether XLA
                compiles.
            told: whether the time of each step is wanted.

        Raises:
            NeedsLayersError: the model cannot have such a step.
        """
        prepare(self._model, self._placement, data.data)
        if not self._model.trainable_variables:
            raise NeedsLayersError("no variable is trainable")
        build = functools.partial(self._train_step, data.data, options)
        self.functions[TRAIN] = TowersFunction(self._model, TRAIN, build, self._finite)
        return self._shards(data, in_graph=not told)

    def evaluation(self, data: EpochData) -> EpochData:
        """Returns data as shards, and makes the step that evaluates on it."""
        prepare(self._model, self._placement, data.data, training=False)
        key = ("evaluate", self._placement, key_of(data.data), self.together.processes.count)
        build = functools.partial(
            kept, self._model, key, functools.partial(self._evaluation_step, data.data)
        )
        self.functions[TEST] = TowersFunction(self._model, TEST, build)
        return self._shards(data)

    def _shards(self, data: EpochData, *, in_graph: bool = True) -> EpochData:
        shards = self.together.shards(data.data, len(self.devices), data.steps)
        size, alone = steps_per_call(self._model), not self.together.is_several
        open_shards = functools.partial(
            ShardIterator, devices=self.devices, per_call=size, in_graph=in_graph and alone
        )
        return EpochData(shards, data.steps, open_shards)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """The scope in which Keras's functions are these steps.

        It waits for all processes, so that none seems to be lost, or ends with fewer batches.
        """
        model, asked = self._model, self._model.steps_per_execution
        with contextlib.ExitStack() as scopes:
            for function in self.functions.values():
                scopes.enter_context(function.scope())
            scopes.callback(setattr, model, "steps_per_execution", asked)
            model.steps_per_execution = steps_per_call(model)
            yield
        self.together.processes.wait()

    def make_slots(self) -> None:
        """Builds the optimizer before the first update does, so that its state can be restored."""
        build_optimizer(self._model, self._placement)

    @property
    def made(self) -> Sequence[StepResults]:
        """The results of the updates of the last call."""
        return self.functions[TRAIN].made

    def after_epoch(self) -> None:
        """Raises NonFiniteGradientError if the last gradient was not finite; checks the copies."""
        self._finite.check()
        step: Any = self.functions[TRAIN].build()
        step.check_copies()

    def _train_step(self, data: Data, options: StepOptions) -> TrainStep:
        """Returns the step, the same for the same model, data, devices and options."""
        model, placement = self._model, self._placement
        self._prepare(data)
        optimizer, _ = split_optimizer(model, placement)
        options = dataclasses.replace(options, compiled=compiles(model, placement))
        rates = tuple(id(learning_rate_object(one)) for one in optimizers_in(optimizer))
        count = self.together.processes.count
        of_keras = self.functions[TRAIN].of_keras  # A callback may make it anew.
        key = ("fit", options, placement, key_of(data), count, model.optimizer, rates, of_keras)
        step, trainable = kept(model, key, lambda: self._trace(data, options))
        if trainable != list(map(id, model.trainable_variables)):
            warnings.warn(
                "`trainable` was changed after the training was traced. As in Keras, the same "
                "variables are trained as before, until you call model.compile() again.",
                stacklevel=2,
            )
        return step

    def _trace(self, data: Data, options: StepOptions) -> tuple[TrainStep, list[int]]:
        """Returns the step, and the ids of the variables that it trains."""
        model, placement = self._model, self._placement
        self._prepare(data, options.accumulate)
        optimizer, loss_scale = split_optimizer(model, placement)
        options = dataclasses.replace(options, loss_scale=loss_scale)

        def step_with(options: StepOptions) -> TrainStep:
            return build_train_step(
                tower_fn, model, optimizer, placement, data.one_pass(0), options,
                self.together.processes, also=functools.partial(updated_logs, model),
            )  # fmt: skip

        own = compiled_tower_fn(model, training=True)
        with unscaling_off(optimizer), same_start(model, own) as tower_fn:
            try:
                step = step_with(options)
            except NotCompilableError as error:
                warnings.warn(f"jit_compile is off. {error}", RuntimeWarning, stacklevel=2)
                step = step_with(dataclasses.replace(options, compiled=False))
        # Keras squares or clips each repeated row.
        if step.update.sums_rows and not all(map(is_linear, optimizers_in(optimizer))):
            kept(model, (TABLES,), lambda: self.is_quiet or print(f"{model.name}: {TABLES}"))
        return step, list(map(id, model.trainable_variables))

    def _prepare(self, data: Data, num_parts: int = 0, *, training: bool = True) -> None:
        """Prepares the model as it is, which a callback may have changed or compiled.

        It is traced next if each tower takes so many parts; a single one has all rows together.
        """
        to_trace = len(self._placement.devices) * num_parts > 1
        try:
            prepare(self._model, self._placement, data, training=training, to_trace=to_trace)
        except NeedsLayersError as error:
            raise ValueError(
                f"A callback has changed the model, which its step cannot follow: {error}. Change "
                "and compile it between two calls of towers.fit, or compile(run_eagerly=True)."
            ) from error

    def _evaluation_step(self, data: Data) -> EvaluationStep:
        model, processes = self._model, self.together.processes
        self._prepare(data, 1, training=False)
        with same_start(model, compiled_tower_fn(model, training=False)) as tower_fn:
            step = build_evaluation_step(
                tower_fn, model, self._placement, data.one_pass(0),
                also=functools.partial(updated_logs, model), processes=processes,
            )  # fmt: skip
        step.probe = None  # Losses and metrics of Keras's are sums as they are asked for.
        return step

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint saves, by group name, whatever is frozen.

        Random numbers of the towers follow from the seed and the step instead.
        """
        model, (optimizer, scale) = self._model, split_optimizer(self._model, self._placement)
        groups: dict[str, Any] = {
            "variables": [one for one in model.variables if not is_seed(one)],
            "optimizer": optimizer.variables,
            "loss_scale": scale.variables if scale else [],
            "metrics": [one for metric in model.metrics for one in metric.variables],
        }
        return {name: found for name, found in groups.items() if found or name == "optimizer"}

    @property
    def graph(self) -> tf.Graph:
        """The step's graph."""
        return self.functions[TRAIN].build().graph


def is_linear(optimizer: keras.optimizers.Optimizer) -> bool:
    """Returns whether an update of a sum of gradients is the sum of the updates."""
    clips = optimizer.clipnorm or optimizer.global_clipnorm or optimizer.clipvalue
    return type(optimizer) is keras.optimizers.SGD and not clips


def split_optimizer(
    model: keras.Model, placement: Placement
) -> tuple[keras.optimizers.Optimizer, LossScale | None]:
    """Returns the optimizer that applies gradients, and the loss scale.

    Both belong to the built model's optimizer, which is trained on as it is: the scale is the one
    that `compile` added, or the `loss_scale_factor` that it was made with. Without either, layers
    in float16 have 1: gradients of the summed loss overflow where those of the mean do not.
    """
    optimizer = model.optimizer
    if optimizer.loss_scale_factor is not None:
        return optimizer, FixedLossScale(optimizer.loss_scale_factor)
    if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        is_half = any(one.compute_dtype == "float16" for one in flatten_layers(model))
        return optimizer, FixedLossScale(1.0) if is_half else None
    build_optimizer(model, placement)
    return optimizer.inner_optimizer, LossScale.of_keras(optimizer)


def build_optimizer(model: keras.Model, placement: Placement) -> None:
    """Builds the model's optimizer for what is trainable now, unless it is built."""
    if not model.optimizer.built:
        with placement.scope():
            model.optimizer.build(model.trainable_variables)


@contextlib.contextmanager
def unscaling_off(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """The scope in which an optimizer takes gradients as they are: the towers unscale them."""
    factor, optimizer.loss_scale_factor = optimizer.loss_scale_factor, None
    try:
        yield
    finally:
        optimizer.loss_scale_factor = factor
