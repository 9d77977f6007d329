"""`towers train`: trains a recipe, or continues its run."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from towers.scripts.commands.config_file import with_config
from towers.scripts.commands.option_types import (
    path_name,
    positive_float,
    positive_int,
    step_range,
)
from towers.scripts.commands.options import (
    add_device_options,
    add_engine_options,
    add_recipe_options,
    add_sharing_option,
    check_contradictions,
    chosen_recipe,
    read_options,
)
from towers.scripts.launching.schedulers import warn_alone
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.shown import show
from towers.scripts.training.config import config_text
from towers.scripts.training.options import TrainOptions
from towers.scripts.training.outline import takes_files
from towers.scripts.training.recipe import Recipe
from towers.scripts.wrong_input import WrongInputError, wrong_input


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.description = "Trains a recipe. The same command continues an interrupted run."
    parser.add_argument("recipe", metavar="RECIPE", nargs="?",
                        help="see `towers recipes`; may stand in the config file")  # fmt: skip
    parser.add_argument("--run-dir", type=path_name, metavar="DIR", help="default: runs/RECIPE")
    parser.add_argument("--epochs", type=positive_int, metavar="E", help="default: the recipe's")
    parser.add_argument(
        "--steps", type=positive_int, metavar="S", help="instead of epochs (default: none)"
    )
    parser.add_argument("--max-minutes", type=positive_float, metavar="M",
                        help="stop and save after M minutes; the same command goes on "
                             "(default: no limit)")  # fmt: skip
    parser.add_argument("--init-from", type=path_name, metavar="RUN_DIR",
                        help="begin with the weights of another run, as far as names and shapes "
                             "are the same (default: none)")  # fmt: skip
    parser.add_argument("--overwrite", action="store_true",
                        help="remove the run that is in the directory; asks first on a "
                             "terminal")  # fmt: skip
    add_config_options(parser)
    add_recipe_options(parser)
    add_device_options(parser)
    add_sharing_option(parser)
    add_engine_options(parser)
    add_period_options(parser)
    add_output_options(parser)


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """Adds what has to do with config files."""
    group = parser.add_argument_group("config files")
    group.add_argument("--config", metavar="FILE",
                       help="options and fields in TOML (or YAML), such as a run's run.toml; the "
                            "command line wins (default: none)")  # fmt: skip
    group.add_argument("--dump-config", action="store_true",
                       help="print the config file of this training instead of "
                            "training")  # fmt: skip


def add_period_options(parser: argparse.ArgumentParser) -> None:
    """Adds how often the training reports, evaluates and saves."""
    group = parser.add_argument_group("reports, evaluations and checkpoints")
    group.add_argument("--report-every", type=positive_int, metavar="STEPS", help="default: 50")
    group.add_argument("--evaluate-every", type=positive_int, metavar="STEPS",
                       help="default: every epoch")  # fmt: skip
    group.add_argument("--early-stopping", type=positive_int, metavar="N",
                       help="stop after N evaluations without a better one (default: "
                            "never)")  # fmt: skip
    group.add_argument("--checkpoint-every", type=positive_int, metavar="STEPS",
                       help="default: every epoch")  # fmt: skip
    group.add_argument("--checkpoint-minutes", type=positive_float, metavar="M",
                       help="also save after M minutes (default: 10)")  # fmt: skip
    group.add_argument("--keep-checkpoints", type=positive_int, metavar="N",
                       help="keep the N latest, and the best (default: 3)")  # fmt: skip


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Adds how much is printed."""
    group = parser.add_argument_group("output")
    group.add_argument("--quiet", action="store_true", help="print warnings and errors only")
    group.add_argument("--verbose", action="store_true",
                       help="also print every save, the model's size and the "
                            "versions")  # fmt: skip
    group.add_argument("--json", action="store_true",
                       help="last line: one JSON object with the run's metrics")  # fmt: skip
    group.add_argument("--histograms", type=positive_int, metavar="STEPS",
                       help="write histograms of the trained variables for TensorBoard every so "
                            "many steps (default: none)")  # fmt: skip
    group.add_argument("--profile", type=step_range, metavar="FIRST-LAST",
                       help="record these steps for TensorBoard's profiler, such as 100-110 "
                            "(default: none)")  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Trains, and returns the exit code: 0, or 128 + the number of the signal that ended it."""
    with wrong_input():
        check_contradictions(given)  # A config file may be contradicted: the command line wins.
        given = with_config(given, add_options)
    if not hasattr(given, "recipe"):
        raise WrongInputError(
            "`towers train` takes a RECIPE, here or in the file of --config. Received neither; "
            "`towers recipes` lists them."
        )
    begin_digests_for(given.recipe, getattr(given, "data", ()))
    import_tensorflow_quietly()
    options = read_options(TrainOptions, given)
    with wrong_input():
        recipe = chosen_recipe(given)
    if getattr(given, "dump_config", False):
        show(config_text(recipe, options).rstrip("\n"))
        return 0
    return train(recipe, options)


def begin_digests_for(recipe: str, paths: Sequence[str]) -> None:
    """Begins the digests by which a recipe knows its files, for TensorFlow's import takes long."""
    if paths and takes_files(recipe):
        from towers.data.prepared.digests import begin_digests

        begin_digests(paths)


def train(recipe: Recipe, options: TrainOptions) -> int:
    """Trains; with --json, the last line is the run's overview."""
    from towers.scripts.training.opening import open_training
    from towers.scripts.training.overview import read_overview
    from towers.scripts.training.training import SIGNAL_CODES

    warn_alone(os.environ)
    run_dir = Path(options.run_dir or f"runs/{recipe.name}")
    if options.overwrite:
        confirm_overwrite(run_dir)
    with wrong_input():
        training = open_training(recipe, options)
    with training, wrong_input(OSError):  # Such as a full disk.
        reason = training.train()
    if options.output.json:
        show(json.dumps({**read_overview(run_dir).summary(), "reason": reason}), flush=True)
    return SIGNAL_CODES.get(reason, 0)


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
