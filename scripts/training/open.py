"""An open run: the devices, the data, the model and the files, all at the run's last checkpoint."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

import towers
from towers.data.prepared import digest_of
from towers.ground.durable import write_file
from towers.ground.progress import count_of, waiting
from towers.scripts.training.config import config_text
from towers.scripts.training.engine import (
    choose_placement,
    describe_parameters,
    describe_stages,
    open_updates,
)
from towers.scripts.training.options import TrainOptions
from towers.scripts.training.overview import read_overview
from towers.scripts.training.plan import Plan
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.run_files import RunFiles
from towers.scripts.training.run_output import RunOutput, describe_model
from towers.scripts.training.saved_run import InitialWeights, choose_checkpoint
from towers.scripts.training.session import Session, choose_devices, make_session, open_data

OVER_SECONDS = 60.0  # For which a worker of a finished run waits for others that go on with it.


class OpenRun(NamedTuple):
    """A run that is ready to train: its plan, its parts and its last step."""

    plan: Plan
    record: dict[str, Any]
    session: Session
    updates: towers.steps.Updates
    files: RunFiles
    output: RunOutput
    total_steps: int


@contextlib.contextmanager
def open_run(plan: Plan, before: dict[str, Any] | None) -> Iterator[OpenRun]:
    """The scope of a run at its newest checkpoint, recorded as one that trains.

    It begins, or goes on with what was recorded before.

    Raises:
        ValueError: the devices, the data or the weights cannot be used.
        OSError: a file cannot be read or written.
    """
    options = plan.options
    initial = read_initial_weights(plan, before)
    with contextlib.ExitStack() as closing:
        output = RunOutput(quiet=options.output.quiet)
        closing.callback(output.close)
        session, record = open_recipe(plan, before, output)
        if before is not None:  # The content of the data is known now.
            before = plan.directory.find_run(record)
        total_steps = (
            options.steps or session.recipe.fields.epochs * session.data.train.steps_per_epoch
        )
        check_profile(options.output.profile, total_steps)
        with waiting("building the step"):
            updates = open_updates(session, options)
        files = RunFiles(
            plan.directory,
            session,
            updates,
            record,
            output,
            # A short training reports at its end: otherwise it would leave no curve of any tower.
            report_every=min(options.periods.report_every, total_steps),
            keep=options.periods.keep_checkpoints,
        )
        closing.callback(files.curves.close)
        run = OpenRun(plan, record, session, updates, files, output, total_steps)
        print_opening(run)
        restore(run, before, initial)
        output.bar = towers.actions.ProgressBar(
            total_steps,
            updates.position.step,
            steps_per_epoch=session.data.train.steps_per_epoch,
            quiet=options.output.quiet,
        )
        begin(run, before)
        yield run


def read_initial_weights(plan: Plan, before: dict[str, Any] | None) -> InitialWeights | None:
    """Returns the weights with which the run is to begin, None where it goes on or has no wish.

    The chief of several processes sends them to the others.
    """
    goes_on = before is not None and not plan.directory.is_unsaved
    if plan.options.init_from is None or goes_on or not plan.is_chief:
        return None
    directory = RunDirectory(plan.options.init_from)
    return InitialWeights(directory, choose_checkpoint(directory, directory.read(), "best"))


def open_recipe(
    plan: Plan, before: dict[str, Any] | None, output: RunOutput
) -> tuple[Session, dict[str, Any]]:
    """Returns the devices, the data and the model of a run, and what it records with them."""
    options = plan.options
    if options.engine.deterministic:
        towers.enable_determinism()
    chosen, processes = choose_devices(options.devices), join(plan, before)
    plan = plan.going_on(processes.of_chief(plan.recorded))
    options = plan.options
    equal = {**plan.common_settings(), "towers (--towers)": len(chosen.towers)}
    towers.processes.check_settings(processes, equal)
    recipe, precision = plan.recipe, options.engine.precision
    data = open_data(recipe, options.data, options.seed, precision, processes, write=output.write)
    if data.train.steps_per_epoch < 1:
        raise ValueError(f"The data of {recipe.name} has no batches: it is empty or too small.")
    trial = before and before.get("trial")
    placement, trial = choose_placement(recipe, options, chosen, data, trial)
    session = make_session(recipe, data, chosen, placement, processes)
    if data.summary:
        output.write(data.summary)
    check_choice_by(session, options)
    record = {**plan.record, "data_key": data.key, "about": data.about, "chooses": data.chooses}
    if data.text is not None:
        record["text_digest"] = digest_of(data.text)
    found = record.get("text_digest")
    if before is not None and before.get("text_digest", found) != found:
        own = shlex.join(before.get("data") or ())
        raise ValueError(
            "The data has a different vocabulary from the run's, so the run cannot continue with "
            f"it. Give the data that it was trained on{own and f' (--data {own})'}, or start a new "
            f"run with --init-from {plan.directory.typed}."
        )
    if trial:
        record["trial"] = trial
    return session, record


def join(plan: Plan, before: dict[str, Any] | None) -> towers.processes.Processes:
    """Returns the processes of a run.

    Raises:
        StopTraining: this is not the chief, nobody else comes, and the run is finished.
        OSError: other processes did not come.
    """
    silent = {"silent_seconds": plan.options.silent_seconds}
    if plan.is_chief or before is None or not is_finished(plan, before):
        return towers.processes.join_processes(**silent)
    try:
        return towers.processes.join_processes(wait_seconds=OVER_SECONDS, **silent)
    except TimeoutError:
        raise towers.StopTraining(
            f"{plan.directory.path} is finished, and no other process joined"
        ) from None


def is_finished(plan: Plan, before: dict[str, Any]) -> bool:
    """Returns whether the run in the directory of a plan has nothing left to do."""
    run = read_overview(plan.directory.path)
    wants_more = before["fields"]["epochs"] < plan.recipe.fields.epochs
    if plan.options.steps is not None:
        wants_more = run.step < plan.options.steps
    return run.state == "finished" and not wants_more


def check_choice_by(session: Session, options: TrainOptions) -> None:
    """Raises ValueError for early stopping without validation data, which would be by test data."""
    if options.periods.early_stopping and not session.data.chooses:
        has_share = hasattr(session.recipe.fields, "validation_share")
        own = "validation_share=0.1" if has_share else "part=validation"
        raise ValueError(
            "--early-stopping would choose the end by the test data, and the test result would "
            f"then be too good. Hold out data for that choice: --set {own}."
        )


def check_profile(steps: str | None, total_steps: int) -> None:
    """Raises ValueError for a range of steps that the training does not reach."""
    if steps is not None and int(steps.partition("-")[0]) > total_steps:
        raise ValueError(
            f"--profile {steps} begins after the last step of this training, {total_steps}. Give "
            "earlier steps, or train longer."
        )


def print_opening(run: OpenRun) -> None:
    """Prints what trains, and where."""
    session, options = run.session, run.plan.options
    run.output.write(
        f"{session.recipe.name}: {session.devices.description}, parameters on "
        f"{describe_parameters(session)}, run in {run.plan.directory.path}"
        f"{session.processes.description}"
    )
    run.files.alarm.begin(None if options.steps else run.total_steps)
    for line in describe_stages(session.model, session.placement):
        run.output.write(line)
    if options.output.verbose:
        run.output.write(describe_model(session.model))


def restore(run: OpenRun, before: dict[str, Any] | None, initial: InitialWeights | None) -> None:
    """Restores the newest checkpoint, else the initial weights; all processes get what it holds.

    Only the chief of several needs the files.
    """
    updates = run.updates
    checkpoint = run.files.restore() if run.plan.is_chief and before is not None else None
    if checkpoint is not None:
        own = ", ".join(f"{name}={value}" for name, value in run.plan.kept.items())
        run.output.write(
            f"continues at step {updates.position.step} from {checkpoint.path}"
            f"{f', with its own {own}' if own else ''}"
        )
    elif initial is not None:
        run.output.write(initial.fill(run.session, updates))
    run.files.broadcast()
    end_if_over(run)
    if run.plan.is_chief and before is not None:
        run.files.cut()


def end_if_over(run: OpenRun) -> None:
    """Raises StopTraining in all processes if the run has all that is asked for; it stays as is."""
    processes = run.session.processes
    reason = processes.of_chief(why_over(run) if run.plan.is_chief else "")
    if reason:
        processes.wait()  # A process that leaves early looks like one that died.
        raise towers.StopTraining(reason)


def why_over(run: OpenRun) -> str:
    """Returns why there is nothing left to train; empty if there is, or the end is missing."""
    files, path, step = run.files, run.plan.directory.path, run.updates.position.step
    is_finished = files.metrics.has_finished() and files.evaluated_step == step
    early = run.plan.options.periods.early_stopping
    if step > run.total_steps or (is_finished and step == run.total_steps):
        return (
            f"{path} has {count_of(step, 'step')} and stays as it is, since this command asks for "
            f"{run.total_steps}. Ask for more epochs or steps to continue it."
        )
    if is_finished and early:
        try:
            files.best.check(early)
        except towers.StopTraining as stop:
            return f"{path} stays as it is: {stop}"
    return ""


def begin(run: OpenRun, before: dict[str, Any] | None) -> None:
    """Records the run, in the chief and in every process that does not share its disk."""
    directory, session = run.plan.directory, run.session
    with session.processes.chief_first():
        if run.plan.is_chief or directory.find_run(run.record) is None:
            directory.begin(run.record, session.devices.towers, before, session.processes.count)
            text = config_text(session.recipe, run.plan.options)
            write_file(directory.config, text.encode("utf-8"))
            if session.data.text is not None:
                session.data.text.save(directory.text)
