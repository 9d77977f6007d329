"""`towers evaluate`: the test metrics of a run's checkpoint."""

from __future__ import annotations

import argparse
import json

from scripts.recipe import import_recipe, parse_overrides, restore_recipe
from scripts.run_directory import RunDirectory
from scripts.session import open_session
from scripts.trained import choose_checkpoint, restore_model
from towers.checkpoints import Checkpoint


def run(options: argparse.Namespace) -> int:
    """Prints the metrics, and with --json as one object in the last line."""
    directory = RunDirectory(options.run_dir)
    record = directory.read()
    checkpoint = choose_checkpoint(directory, options.checkpoint)
    fields = dict(record["fields"])
    fields["batch_size"] = options.batch_size or fields["batch_size"]
    fields.update(parse_overrides(import_recipe(record["recipe"]).Fields, options.overrides))
    recipe = restore_recipe(record["recipe"], fields)
    options.data = options.data or record["data"]
    session = open_session(recipe, options, seed=record["seed"], precision=record["precision"])
    restore_model(session.model, checkpoint)
    metrics = session.evaluate()
    if session.examiner is not None:
        metrics.update(session.examiner.examine(print))
    print(describe(checkpoint, metrics, recipe.unit))
    if options.json:
        metrics["examples"] = round(metrics["examples"])
        metrics[recipe.unit] = metrics["examples"]
        print(json.dumps({**metrics, "step": checkpoint.step, "checkpoint": str(checkpoint.path)}))
    return 0


def describe(checkpoint: Checkpoint, metrics: dict[str, float], unit: str) -> str:
    """Returns the metrics in one line."""
    values = " | ".join(
        f"{name} {value:.4f}" for name, value in metrics.items() if name != "examples"
    )
    return f"test  | step {checkpoint.step} | {values} | {metrics['examples']:.0f} {unit}"
