"""`towers evaluate`: the test metrics of a run's checkpoint."""

from __future__ import annotations

import argparse
import dataclasses
import json

from scripts.recipe import restore_recipe
from scripts.run_directory import RunDirectory
from scripts.session import Session, open_session
from towers.checkpoints import Checkpoint, CheckpointFolder, restore
from towers.parameters import SharedVariables


def run(options: argparse.Namespace) -> int:
    """Prints the metrics, and with --json as one object in the last line."""
    directory = RunDirectory(options.run_dir)
    record = directory.read()
    checkpoint = choose_checkpoint(directory, options.checkpoint)
    fields = dict(record["fields"])
    fields["batch_size"] = options.batch_size or fields["batch_size"]
    recipe = restore_recipe(record["recipe"], fields)
    options.data = options.data or record["data"]
    session = open_session(recipe, options, seed=record["seed"], precision=record["precision"])
    restore_model(session, checkpoint)
    metrics = session.evaluate()
    if session.examiner is not None:
        metrics.update(session.examiner.examine(print))
    print(describe(checkpoint, metrics))
    if options.json:
        metrics["examples"] = round(metrics["examples"])
        print(json.dumps({**metrics, "step": checkpoint.step, "checkpoint": str(checkpoint.path)}))
    return 0


def choose_checkpoint(directory: RunDirectory, which: str) -> Checkpoint:
    """Returns the best checkpoint of a run, or its latest."""
    folder = CheckpointFolder(directory.checkpoints)
    checkpoint = folder.best() if which == "best" else None
    checkpoint = checkpoint or folder.latest()
    if checkpoint is None:
        raise ValueError(
            f"{directory.path} has no checkpoint yet. Train longer, or save more often with "
            "--checkpoint-every."
        )
    return checkpoint


def restore_model(session: Session, checkpoint: Checkpoint) -> None:
    """Puts the checkpoint's values into the model; the optimizer's are not needed."""
    variables = SharedVariables(session.model.variables, []).all
    model_only = {"variables": checkpoint.groups.get("variables", [])}
    restore(dataclasses.replace(checkpoint, groups=model_only), {"variables": variables})


def describe(checkpoint: Checkpoint, metrics: dict[str, float]) -> str:
    """Returns the metrics in one line."""
    values = " | ".join(
        f"{name} {value:.4f}" for name, value in metrics.items() if name != "examples"
    )
    return f"test  | step {checkpoint.step} | {values} | {metrics['examples']:.0f} examples"
