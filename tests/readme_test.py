"""The README keeps its word: its example runs, its commands and links exist."""

import re
import shlex

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.paths import ROOT
from towers.scripts import bootstrap
from towers.scripts.main import build_parser
from towers.scripts.training.catalogue import recipe_names

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def test_model_of_the_reader_trains_in_the_example(capsys):
    names = run_example("towers.Trainer")
    losses = [float(loss) for loss in names["losses"]]
    assert losses[-1] < 0.5 * losses[0]
    assert isinstance(names["model"], keras.Model)
    assert isinstance(names["step"](*first_batch(names)).loss, tf.Tensor)


def run_example(contains):
    """Runs the example that contains a text and returns its names."""
    (example,) = [code for language, code in BLOCKS if language == "python" and contains in code]
    names: dict = {}
    exec(compile(example, "README.md", "exec"), names)
    return names


def test_functional_form_of_the_reader_merges_what_the_towers_return():
    names = run_example("towers.parallel")
    outputs = names["run"](names["features"], names["labels"])
    for key, expected in outputs.items():
        np.testing.assert_allclose(names["merged"][key], expected, rtol=1e-5)
    assert len(names["gradients"]) == 4 and all(part is not None for part in names["gradients"])


def first_batch(names):
    dataset = names["towers"].split(names["batches"](0, 0), len(names["devices"]))
    return next(iter(dataset)), 1


COMMANDS = sorted(
    {
        line.strip()
        for language, code in BLOCKS
        if language == "sh"
        for line in code.splitlines()
        if line.startswith("towers ")
    }
    | set(re.findall(r"`(towers [a-z]+(?: [^`]*)?)`", README))
)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_readme_is_one(command):
    arguments = shlex.split(command, comments=True)[1:]
    if arguments == ["train"] or "--help" in arguments:
        return
    options = build_parser().parse_args(arguments)
    assert getattr(options, "recipe", None) in (None, *recipe_names())


def test_set_up_commands_are_those_of_the_bootstrap():
    jobs = re.findall(r"python3 scripts/bootstrap\.py (\w+)", README)
    assert set(jobs) <= set(bootstrap.JOBS) and {"train", "test"} <= set(jobs)


def test_commands_of_the_bootstrap_are_there():
    for job in bootstrap.JOBS.values():
        for command in job:
            if command[:2] == bootstrap.TOWERS:
                build_parser().parse_args(command[2:])


def test_nothing_is_left_to_be_filled_in():
    assert "@@" not in README


def test_pictures_and_links_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
