"""The engine of a training: its updates, where parameters live, and what cannot be combined."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import keras

import towers
from towers.scripts.shown import show
from towers.scripts.training.options import WITHOUT_COPIES, TrainOptions
from towers.scripts.training.recipe import Data, Recipe
from towers.scripts.training.session import Session, build_step, step_parts


def open_updates(session: Session, options: TrainOptions) -> towers.steps.Updates:
    """Returns one update from all towers or, with `--updates async`, one from each."""
    if options.engine.updates == "async":
        step: towers.steps.Step = towers.steps.build_async_step(*step_parts(session, options))
    else:
        step = build_step(session, options)
    return towers.steps.updates_of(step, session.data.train)


def describe_parameters(session: Session) -> str:
    """Returns where the variables live and, if packs do not sum between copies, what does."""
    placement = session.placement
    first, *others = placement.copy_groups
    where = ", ".join(dict.fromkeys(map(towers.devices.short_device, first)))
    is_alone = len(placement.devices) * session.processes.count == 1
    by = "" if is_alone or placement.exchange in WITHOUT_COPIES else placement.exchange
    return f"{'each of them' if others else where}{f', summed by {by}' if by else ''}"


def describe_stages(model: keras.Model, placement: towers.Placement) -> Iterator[str]:
    """Yields a line for each stage: its layers with parameters, and how many these are.

    For towers of one device each there is none.
    """
    stages, variables = placement.place(model), model.trainable_variables
    layers = [layer for block in stages.blocks for layer in block if layer.trainable_variables]
    for number, indices in enumerate(stages.indices(variables) if layers else ()):
        names = ", ".join(layer.name for layer in layers if stages.of(layer) == number)
        count = sum(math.prod(variables[index].shape) for index in indices)
        devices = [towers.devices.short_device(group[number]) for group in placement.groups]
        yield f"stage {number} on {', '.join(devices)}: {names} ({count:,} parameters)"


def choose_placement(
    recipe: Recipe,
    options: TrainOptions,
    devices: towers.devices.Devices,
    data: Data,
    before: dict[str, Any] | None,
) -> tuple[towers.Placement, dict[str, Any] | None]:
    """Returns where the variables live, and what the run keeps of its measurement, None for none.

    `auto` on several GPUs measures it, once: what the run measured before holds for as many towers.
    """
    policy: str = options.devices.parameters
    exchange: str = options.engine.exchange
    if is_measured(options, devices):
        trial = trial_of(before, options, devices) or measure(recipe, options, devices, data)
        before = {"towers": len(devices.towers), "milliseconds": trial.milliseconds}
        policy, exchange = trial.parameters, trial.exchange
    exchange = "packs" if exchange == "auto" else exchange
    return towers.Placement(devices.groups, policy, exchange), before


def is_measured(options: TrainOptions, devices: towers.devices.Devices) -> bool:
    """Returns whether there is something to measure.

    The sums of `--deterministic` runs depend on no machine's speed, and only synchronous towers
    can have copies. Where one GPU is too small for the model, a trial would be as well.
    """
    engine = options.engine
    return (
        options.devices.parameters == "auto"
        and engine.exchange in WITHOUT_COPIES
        and engine.updates == "sync"
        and not engine.deterministic
        and len(devices.towers) > 1
        and len(devices.groups[0]) == 1
        and all("GPU" in device for device in devices.towers)
    )


def trial_of(
    record: dict[str, Any] | None, options: TrainOptions, devices: towers.devices.Devices
) -> towers.steps.Trial | None:
    """Returns what a run measured, unless the towers or the exchange are now others."""
    if record is None or record["towers"] != len(devices.towers):
        return None
    trial = towers.steps.Trial(record["milliseconds"])
    return trial if options.engine.exchange in ("auto", trial.exchange) else None


def measure(
    recipe: Recipe, options: TrainOptions, devices: towers.devices.Devices, data: Data
) -> towers.steps.Trial:
    """Returns a trial of all places, and says it; several processes must sum in the same way."""

    def build(placement: towers.Placement) -> towers.engine.TrainStep:
        with placement.scope():
            model = recipe.make_model(recipe.fields, data)
        alone = towers.processes.Processes()
        session = Session(recipe, data, model, devices, placement, alone)
        return build_step(session, options)

    by_packs = options.engine.exchange == "packs" or is_one_of_several()
    policies = ("cpu", "replicated") if by_packs else None
    trial = towers.steps.try_parameters(build, devices.towers, data.train, policies)
    keras.utils.set_random_seed(options.seed)
    if not options.output.quiet:
        show(trial.description, flush=True)
    return trial


def check_engine(options: TrainOptions) -> None:
    """Raises ValueError for options with which no step can run together."""
    devices, engine = options.devices, options.engine
    sharing = f"--gpus-per-tower {devices.gpus_per_tower}"
    exchange = f"--exchange {engine.exchange}"
    needs_copies = engine.exchange not in WITHOUT_COPIES
    if engine.updates == "async":  # In one process, on shared variables, in any order.
        refused = {
            "--deterministic": engine.deterministic,
            "--parameters replicated": devices.parameters == "replicated",
            sharing: devices.gpus_per_tower > 1,
            exchange: needs_copies,
            "--batch-norm first": engine.batch_norm == "first",
            f"--steps-per-call {engine.steps_per_call}": engine.steps_per_call > 1,
            "several processes": is_one_of_several(),
        }
        refuse_all("--updates async", refused, "use --updates sync")
    if devices.gpus_per_tower > 1:
        refused = {
            "--xla": engine.xla,
            exchange: needs_copies,
            "several processes": is_one_of_several(),
        }
        refuse_all(sharing, refused, "give each tower one GPU")
    if needs_copies:  # The order of its sums depends on their number.
        refused = {
            "--deterministic": engine.deterministic,
            f"--parameters {devices.parameters}": devices.parameters not in ("auto", "replicated"),
            "--virtual": devices.virtual,
        }
        refuse_all(exchange, refused, "use --exchange packs")
    if engine.deterministic:  # What a tower sums alone must not depend on how many there are.
        is_power = engine.accumulate & (engine.accumulate - 1) == 0
        refused = {
            f"--accumulate {engine.accumulate}": not is_power,
            "--batch-norm first": engine.batch_norm == "first",
        }
        refuse_all("--deterministic", refused, "use a power of two and --batch-norm mean")
    periods = {  # Of what reads the weights.
        "--evaluate-every": options.periods.evaluate_every,
        "--checkpoint-every": options.periods.checkpoint_every,
        "--histograms": options.output.histograms,
    }
    calls = engine.steps_per_call
    refused = {f"{name} {steps}": bool(steps and steps % calls) for name, steps in periods.items()}
    refuse_all(f"--steps-per-call {calls}", refused, "give a number that divides it evenly")


def refuse_all(option: str, refused: dict[str, bool], remedy: str) -> None:
    """Raises ValueError that lists the given options with which another one cannot train."""
    received = [name for name, given in refused.items() if given]
    if received:
        raise ValueError(
            f"{option} cannot be combined with {', '.join(received)}. Leave that out, or {remedy}."
        )


def is_one_of_several() -> bool:
    """Returns whether this process is one of several that train together."""
    return towers.processes.find_place() is not None
