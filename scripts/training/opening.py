"""Opens a training: at its place, with its data and model, from its newest checkpoint."""

from __future__ import annotations

import contextlib
from typing import Any

import towers
from towers.ground.durable import write_file
from towers.scripts.shown import show
from towers.scripts.training.config import config_text
from towers.scripts.training.engines import check_engine, is_one_of_several
from towers.scripts.training.options import TrainOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.record import describe_run, shared_settings
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.session import Session, open_session
from towers.scripts.training.trained import choose_checkpoint
from towers.scripts.training.training import Training
from towers.scripts.training.trial import MeasuredPlacement


def open_training(recipe: Recipe, options: TrainOptions) -> Training:
    """Returns a training, at the newest checkpoint of its run, and records that it begins.

    Raises:
        ValueError: the options, the data or the run directory cannot be used together.
        OSError: a file cannot be read or written.
    """
    check_engine(recipe, options)
    directory = RunDirectory(options.run_dir or f"runs/{recipe.name}")
    record = describe_run(recipe, options)
    check_place(directory, record, options)
    if options.engine.deterministic:
        towers.enable_determinism()
    choose_placement = MeasuredPlacement(recipe, options, trial_before(directory, record, options))
    session = open_session(
        recipe,
        data=options.data,
        devices=options.devices,
        seed=options.seed,
        precision=options.engine.precision,
        shared=shared_settings(record, options),
        choose_placement=choose_placement,
    )
    if session.data.train.steps_per_epoch < 1:
        raise ValueError(f"The data of {recipe.name} has no batch: it is empty, or too small.")
    if session.data.summary and not options.output.quiet:
        show(session.data.summary, flush=True)
    record["data_key"] = session.data.key
    record["about"] = session.data.about
    if choose_placement.record:
        record["trial"] = choose_placement.record
    check_place(directory, record, options)
    with contextlib.ExitStack() as stack:
        if session.processes.is_chief:
            stack.enter_context(directory.locked())
            check_place(directory, record, options)  # Another process may have begun meanwhile.
        training = Training(session, directory, options, record)
        stack.callback(training.close)
        begin(directory, {**record, "devices": list(session.devices.towers)}, session, options)
        training.closing = stack.pop_all()
    return training


def trial_before(
    directory: RunDirectory, record: dict[str, Any], options: TrainOptions
) -> dict[str, Any] | None:
    """Returns what the run that goes on here measured of its placement, if it did."""
    if options.overwrite or not directory.holds(record):
        return None
    trial: dict[str, Any] | None = directory.read().get("trial")
    return trial


def check_place(directory: RunDirectory, record: dict[str, Any], options: TrainOptions) -> None:
    """Raises ValueError unless this can run in its directory, with what it begins with."""
    if options.init_from is not None:
        before = RunDirectory(options.init_from)
        before.read()
        choose_checkpoint(before, "best")
    if options.overwrite and is_one_of_several():
        raise ValueError(
            "--overwrite cannot say for several processes which of them removes the run. Remove "
            f"{directory.path} yourself, and leave --overwrite out."
        )
    if not (options.overwrite and directory.exists):
        directory.check(record)


def begin(
    directory: RunDirectory, record: dict[str, Any], session: Session, options: TrainOptions
) -> None:
    """Records the run, in the chief and in every process that does not share its disk."""
    with session.processes.chief_first():
        if session.processes.is_chief or not directory.holds(record):
            if options.overwrite or not directory.holds(record):
                directory.clear()
            directory.begin(record)
            write_file(directory.config, config_text(session.recipe, options).encode("utf-8"))
            if session.data.text is not None:
                session.data.text.save(directory.text)
