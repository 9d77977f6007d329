"""`towers train`: trains a recipe, or continues its run.

Trains a recipe. The same command continues an interrupted run. A report line shows the mean loss
since the last one, and in brackets each tower's, t0, t1 and so on; on a narrow terminal, only the
smallest and the largest, such as (t1 0.04 - t2 0.13).

    towers train shapes --towers 2
    towers train --config runs/shapes/run.toml --run-dir runs/again
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.options.setting import Count, File, Flag
from towers.scripts.shown import show, show_json
from towers.scripts.training.catalogue import check_contradictions, chosen_recipe
from towers.scripts.training.config import config_text, merged, read_config
from towers.scripts.training.options import BatchedRecipeOptions, TrainOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.wrong_input import WrongInputError, wrong_input

NUMBER = "{n}"
USUAL = {
    *("recipe", "epochs", "overrides", "batch_size", "config", "language"),
    *("run_dir", "data", "seed", "steps", "overwrite", "towers"),
}  # Shown by --help; --help-all shows the rest.


@dataclasses.dataclass(frozen=True)
class TrainedRecipeOptions(BatchedRecipeOptions):
    """The choice of a recipe, here or in a config file.

    Attributes:
        recipe: see `towers recipes`; a config file can name it.
        epochs: passes over the training data (default: the recipe's).
        config: options and fields in TOML (or YAML), such as a run's run.toml; the command line
            wins (default: none).
        dump_config: print the config file of this training instead of training.
    """

    recipe: Annotated[str, "RECIPE", Flag(is_argument=True, nargs="?")] = ""
    epochs: Annotated[Count | None, "E"] = None
    config: File | None = None
    dump_config: bool = False


@dataclasses.dataclass(frozen=True)
class TrainCommandOptions(TrainOptions, TrainedRecipeOptions):
    """The choice of a recipe, and everything about its training."""


def run(options: TrainCommandOptions, after_save: Callable[[], None] | None = None) -> int:
    """Trains, and returns the exit code: 0, or 128 + the number of the signal that ended it.

    `after_save` is called in every process, each time after the chief may have saved.
    """
    with wrong_input():
        recipe = chosen_recipe(options)
    if options.dump_config:
        show(config_text(recipe, options).rstrip("\n"))
        return 0
    if options.data and recipe.takes_files:  # Meanwhile, for TensorFlow's import takes long.
        from towers.data.prepared.digests import begin_digests

        begin_digests(options.data)
    import_tensorflow_quietly()
    return train(recipe, options, after_save)


def completed(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a command line, completed by those of its `--config` file.

    Raises:
        ValueError: a file is wrong, options contradict each other, or no recipe is given.
    """
    check_contradictions(given)  # A file may be contradicted: the command line wins.
    if "config" in given:
        path = Path(given["config"])
        file = read_config(path, TrainCommandOptions)
        if "run_dir" not in given:
            check_is_there(path, file.get("run_dir"))
        given = merged(file, given)
    if not given.get("recipe"):
        raise ValueError(
            "`towers train` takes a RECIPE, on the command line or in the --config file. Received "
            "neither; `towers recipes` lists them."
        )
    return given


def check_is_there(path: Path, run_dir: str | None) -> None:
    """Raises ValueError for the config file of a run that was copied or moved elsewhere."""
    here = path.parent
    if run_dir and (here / "run.json").exists() and here.resolve() != Path(run_dir).resolve():
        raise ValueError(
            f"{path} lies beside a run, but trains in {run_dir}, where it was written. Say with "
            "--run-dir which of both directories is meant."
        )


def train(recipe: Recipe, options: TrainOptions, after_save: Callable[[], None] | None) -> int:
    """Trains; with --json, the last line is the run's overview."""
    from towers.scripts.training.overview import read_overview
    from towers.scripts.training.run import SIGNAL_CODES, run_recipe

    with wrong_input():
        options = dataclasses.replace(options, run_dir=numbered(options.run_dir))
    run_dir = Path(options.run_dir or f"runs/{recipe.name}")
    if options.overwrite:
        confirm_overwrite(run_dir)
    reason = run_recipe(recipe, options, after_save)
    if options.output.json:
        show_json({**read_overview(run_dir).summary(), "reason": reason})
    return SIGNAL_CODES.get(reason, 0)


def numbered(run_dir: str | None) -> str | None:
    """Returns the directory of a run, with the first free number from 1 in place of `{n}`.

    Raises:
        ValueError: several processes train, which might find different numbers.
    """
    from towers import processes

    if run_dir is None or NUMBER not in run_dir:
        return run_dir
    if processes.find_place() is not None:
        raise ValueError(
            f"Several processes need the same directory. Received --run-dir {run_dir}; give a "
            "number instead of {n}."
        )
    names = (run_dir.replace(NUMBER, str(n)) for n in itertools.count(1))
    return next(one for one in names if not os.path.lexists(one))


def confirm_overwrite(run_dir: Path) -> None:
    """Asks on a terminal whether a run is to be removed; WrongInputError if it is not."""
    from towers.scripts.training.overview import read_overview
    from towers.scripts.training.run_directory import RunDirectory

    if not sys.stdin.isatty():
        return
    with wrong_input():
        if not RunDirectory(run_dir).exists:
            return
        run = read_overview(run_dir)
    show(f"{run_dir} holds a run of {run.record['recipe']}, {run.state}, step {run.step}.")
    try:
        answer = input("Remove it? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise WrongInputError(f"{run_dir} is kept. Choose another directory with --run-dir.")
