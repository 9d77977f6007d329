"""The contenders of a benchmark: towers and rivals, each built in the process that times it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

import towers
from towers.scripts.baselines import rivals
from towers.scripts.baselines.apart import Apart, TimedRun
from towers.scripts.baselines.opened import Benchmark, open_benchmark
from towers.scripts.baselines.options import BenchmarkOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.session import carried_state
from towers.scripts.training.stages import share_layers


class Contender(NamedTuple):
    """One way to train.

    Attributes:
        name: as the table shows it.
        kind: `towers`; an exchange, for towers with a copy of the variables each; or a rival.
        number: of towers or replicas; 1 for a rival without replicas.
    """

    name: str
    kind: str
    number: int


def contenders_of(options: BenchmarkOptions) -> list[Contender]:
    """Returns the contenders in the order of the table."""
    label = f" of {options.gpus_per_tower}" if options.gpus_per_tower > 1 else ""
    found = []
    for number in options.towers:
        for kind in ("towers", *(options.exchange if number > 1 else ())):
            found.append(Contender(f"{kind} {number}{label}", kind, number))
    replicas = max(2, *options.towers)
    for kind in options.against:
        if kind.startswith("mirrored"):
            found.append(Contender(f"{kind} {replicas}", kind, replicas))
        else:
            found.append(Contender(kind, kind, 1))
    return found


@contextlib.contextmanager
def open_contenders(
    recipe: Recipe, options: BenchmarkOptions
) -> Iterator[tuple[dict[str, TimedRun], float]]:
    """Yields what runs each contender, by name, and the examples of a batch on average.

    Errors as in `open_benchmark`.
    """
    contenders = contenders_of(options)
    own, *others = in_processes(contenders)
    with contextlib.ExitStack() as stack:
        apart = [stack.enter_context(Apart(open_runs, recipe, options, group)) for group in others]
        opened = open_benchmark(recipe, options, most_towers(own))
        runs = build_runs(opened, own)
        for process in apart:
            runs.update(process.runs())
        yield {contender.name: runs[contender.name] for contender in contenders}, opened.rows


def in_processes(contenders: Sequence[Contender]) -> list[list[Contender]]:
    """Returns the contenders of each process; the first one is this.

    TensorFlow is told once how many devices there are and on how many threads an operation runs,
    which towers on the CPU choose by their number. So without GPUs each number has a process, and
    so has each rival with replicas: beside one, towers took a sixth longer. GPUs are not shared by
    processes.
    """
    if tf.config.list_physical_devices("GPU"):
        return [list(contenders)]
    groups: dict[tuple[int, str], list[Contender]] = {}
    for one in contenders:
        is_apart = one.kind in rivals.RIVALS and one.number > 1
        groups.setdefault((one.number, one.kind if is_apart else ""), []).append(one)
    return list(groups.values())


def most_towers(contenders: Sequence[Contender]) -> int:
    """Returns the most towers or replicas that a contender has."""
    return max(contender.number for contender in contenders)


def open_runs(
    recipe: Recipe, options: BenchmarkOptions, contenders: Sequence[Contender]
) -> dict[str, TimedRun]:
    """Returns what runs each contender; errors as in `open_benchmark`."""
    return build_runs(open_benchmark(recipe, options, most_towers(contenders)), contenders)


def build_runs(opened: Benchmark, contenders: Sequence[Contender]) -> dict[str, TimedRun]:
    """Returns what runs each contender, each with a model of its own."""
    return {contender.name: build_run(opened, contender) for contender in contenders}


def build_run(opened: Benchmark, contender: Contender) -> TimedRun:
    """Returns what runs a contender."""
    kind, number = contender.kind, contender.number
    if kind in rivals.RIVALS:
        return rivals.make_rival(kind, opened.task, opened.devices[:number])
    groups = opened.groups[:number]
    if number == 1 and len(groups[0]) == 1 and "CPU" in groups[0][0]:
        groups = (("/CPU:0",),)
    if kind == "towers":
        return towers_run(opened.task, towers.Placement(groups))
    return towers_run(opened.task, towers.Placement(groups, "replicated", kind))


def towers_run(task: rivals.Task, placement: towers.Placement) -> TimedRun:
    """Returns training on towers by the `Trainer`, its input feed included."""
    step = build_step(task, placement)

    def timed(num_steps: int) -> float:
        ends: list[float] = []
        results: list[Any] = []

        def note(report: towers.StepReport) -> None:
            results[:] = [report.results]
            if not ends or report.step == num_steps:
                float(report.results.loss)  # Waits for the devices.
            ends.append(time.perf_counter())

        updates = towers.steps.SynchronousUpdates(step, towers.batches_from(task.dataset))
        towers.Trainer(updates, [note]).train(steps=num_steps)
        return ends[-1] - ends[0]

    return timed


def build_step(task: rivals.Task, placement: towers.Placement) -> towers.engine.TrainStep:
    """Returns the step of a task on towers, with a model of its own."""
    with placement.scope():
        model = task.make_model()
        optimizer = task.make_optimizer()
    placement = share_layers(task.recipe, model, placement)
    return towers.build_train_step(
        task.make_tower_fn(model),
        model,
        optimizer,
        placement,
        task.dataset,
        towers.StepOptions(
            clip_norm=task.recipe.fields.clip_norm or None,
            carried=carried_state(task.recipe, model, task.data.train),
        ),
    )
