"""`towers evaluate`: the test metrics of a run's checkpoint."""

from __future__ import annotations

import argparse
import filecmp
import json
import pathlib
import tempfile
from typing import Any

from towers.run.checkpoints import Checkpoint
from towers.scripts.training.recipe import import_recipe, parse_overrides, restore_recipe
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.session import open_session
from towers.scripts.training.trained import choose_checkpoint, restore_model


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
    check_text(directory.text, session.data.text)
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


def check_text(saved: pathlib.Path, text: Any) -> None:
    """Raises ValueError unless the data becomes the ids that the run was trained with."""
    if text is None or not saved.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        text.save(folder)
        names = [path.name for path in pathlib.Path(folder).iterdir()]
        same, *_ = filecmp.cmpfiles(saved, folder, names, shallow=False)
    if len(same) < len(names):
        raise ValueError(
            "The data has another vocabulary than that of the run: a model knows only the ids "
            "that it was trained with. Keep the training part as it was and exchange only what "
            "is evaluated."
        )


def describe(checkpoint: Checkpoint, metrics: dict[str, float], unit: str) -> str:
    """Returns the metrics in one line."""
    values = " | ".join(
        f"{name} {value:.4f}" for name, value in metrics.items() if name != "examples"
    )
    return f"test  | step {checkpoint.step} | {values} | {metrics['examples']:.0f} {unit}"
