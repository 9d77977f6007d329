"""The README keeps its word: its example runs, its commands and links exist."""

import pathlib
import re

import keras
import pytest
import tensorflow as tf

from scripts import bootstrap
from scripts.main import build_parser
from scripts.recipe import recipe_names

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def test_model_of_the_reader_trains_in_the_example(capsys):
    (example,) = [code for language, code in BLOCKS if language == "python"]
    names: dict = {}
    exec(compile(example, "README.md", "exec"), names)
    losses = [float(loss) for loss in names["losses"]]
    assert losses[-1] < 0.5 * losses[0]
    assert isinstance(names["model"], keras.Model)
    assert isinstance(names["step"](*first_batch(names)).loss, tf.Tensor)


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
    arguments = command.split("#")[0].split()[1:]
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


def test_pictures_and_links_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
