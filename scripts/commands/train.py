"""`towers train`: trains a recipe, or continues its run."""

from __future__ import annotations

import argparse

from towers.scripts.commands.option_types import path_name, positive_float, positive_int
from towers.scripts.commands.options import (
    add_device_options,
    add_engine_options,
    add_recipe_options,
    check_contradictions,
    chosen_recipe,
    read_options,
)
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.training.options import TrainOptions
from towers.scripts.wrong_input import wrong_input


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.description = "Trains a recipe. The same command continues an interrupted run."
    parser.add_argument("recipe", metavar="RECIPE", help="see `towers recipes`")
    parser.add_argument("--run-dir", type=path_name, metavar="DIR", help="default: runs/RECIPE")
    parser.add_argument("--epochs", type=positive_int, metavar="E")
    parser.add_argument("--steps", type=positive_int, metavar="S", help="instead of epochs")
    add_recipe_options(parser)
    add_device_options(parser)
    add_engine_options(parser)
    add_period_options(parser)


def add_period_options(parser: argparse.ArgumentParser) -> None:
    """Adds how often the training reports, evaluates and saves."""
    group = parser.add_argument_group("reports, evaluations and checkpoints")
    group.add_argument("--report-every", type=positive_int, metavar="STEPS", help="default: 50")
    group.add_argument("--evaluate-every", type=positive_int, metavar="STEPS",
                       help="default: every epoch")  # fmt: skip
    group.add_argument("--early-stopping", type=positive_int, metavar="N",
                       help="stop after N evaluations without a better one")  # fmt: skip
    group.add_argument("--checkpoint-every", type=positive_int, metavar="STEPS",
                       help="default: every epoch")  # fmt: skip
    group.add_argument("--checkpoint-minutes", type=positive_float, metavar="M",
                       help="also save after M minutes (default: 10)")  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Trains, and returns the exit code: 0, or 128 + the number of the signal that ended it."""
    import_tensorflow_quietly()
    from towers.scripts.training.training import SIGNAL_CODES, open_training

    with wrong_input():
        check_contradictions(given)
    options = read_options(TrainOptions, given)
    with wrong_input():
        training = open_training(chosen_recipe(given), options)
    with training, wrong_input(OSError):  # Such as a full disk.
        reason = training.train()
    return SIGNAL_CODES.get(reason, 0)
