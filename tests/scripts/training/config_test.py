"""A config file holds every option and field; the command line wins; a run's starts it anew."""

import argparse
import dataclasses
import json
import pathlib

import numpy as np
import pytest

from tests.scripts.runs import train_shapes, weights_of
from towers.scripts.commands.train import TrainCommandOptions, completed
from towers.scripts.main import add_options, build_parser, load_command, main
from towers.scripts.options.flags import Parser, read_options
from towers.scripts.training.catalogue import chosen_recipe
from towers.scripts.training.config import config_text
from towers.scripts.training.options import TrainOptions


def read(*arguments):
    """Returns the recipe and the options of a `towers train` command."""
    given = completed(vars(build_parser(["train"]).parse_args(["train", *arguments])))
    recipe = chosen_recipe(read_options(TrainCommandOptions, given))
    return recipe, read_options(TrainOptions, given)


@pytest.fixture
def write(tmp_path):
    """A function that writes a config file into a deep folder and returns its path."""

    def write_file(text, name="run.toml"):
        path = tmp_path / "a folder of a long path" / "-".join(["in", "which"] * 8) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write_file


COMMANDS = {
    "defaults": ["shapes"],
    "everything": [
        *("shapes", "--towers", "3", "--gpus", "0,2", "--xla", "--steps", "7", "--seed", "5"),
        *("--profile", "100-110", "--keep-checkpoints", "5", "--init-from", "runs/a", "--quiet"),
        *("--data", "a folder", "-b", "--checkpoint-minutes", "0.5", "--set", "filters=3,4"),
        *("--precision", "bfloat16", "--batch-size", "9", "--run-dir", 'runs/"x"\\\x7f'),
    ],
    "text": ["chatbot", "--language", "zh", "--context", "2", "--set", "copy_unknown=false"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_dumped_is_read_back(name, write):
    arguments = [argument.replace("-b", "./-b") if argument == "-b" else argument
                 for argument in COMMANDS[name]]  # fmt: skip
    recipe, options = read(*arguments)
    recipe_again, again = read("--config", write(config_text(recipe, options)))
    assert recipe_again == recipe
    run_dir = options.run_dir or f"runs/{recipe.name}"
    assert again == type(options)(**{**vars(options), "run_dir": run_dir})


def test_a_name_that_is_no_utf_8_is_left_out_with_a_comment(write):
    recipe, options = read("chatbot", "--data", "caf\udce9", "--set", "answers=\udce9")
    text = config_text(recipe, options)
    assert "# data is not UTF-8" in text and "# answers is not UTF-8" in text
    again, others = read("--config", write(text), "--data", "caf\udce9")
    assert again.fields == dataclasses.replace(recipe.fields, answers="")
    assert others == dataclasses.replace(options, run_dir="runs/chatbot")


def test_a_mark_of_byte_order_is_no_content(write):
    assert read("--config", write('\ufeffrecipe = "shapes"\n'))[0].name == "shapes"


FILE = """
recipe = "shapes"
towers = 2
xla = true
epochs = 3
batch-size = 10
[set]
learning_rate = 0.5
filters = [2, 3]
"""


def test_the_command_line_wins(write):
    line = ["--towers", "4", "--no-xla", "--set", "batch_size=20", "--set", "filters=5"]
    recipe, options = read("--config", write(FILE), *line)
    assert (options.devices.towers, options.engine.xla, options.steps) == (4, False, None)
    fields = recipe.fields
    assert (fields.batch_size, fields.filters, fields.learning_rate) == (20, (5,), 0.5)
    assert fields.epochs == 3
    config = write(FILE.replace("filters = [2, 3]", ""))
    recipe, options = read("--config", config, "--batch-size", "30", "cifar10")
    assert (recipe.name, recipe.fields.batch_size) == ("cifar10", 30)


def test_a_path_may_begin_at_the_home(write, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    config = write('recipe = "shapes"\ndata = ["~/a", "b"]\nrun-dir = "~/file"\n')
    _, options = read("--config", config, "--run-dir=~/line")
    assert (options.run_dir, options.data) == ("/home/ann/line", ("/home/ann/a", "b"))


def test_steps_and_epochs_stand_for_each_other(write):
    config = write(FILE)
    recipe, options = read("--config", config, "--steps", "9")
    assert options.steps == 9 and recipe.fields.epochs == 10  # The recipe's, which is not used.
    config = write('recipe = "shapes"\nsteps = 9\n')
    for epochs in (["--epochs", "2"], ["--set", "epochs=2"]):
        recipe, options = read("--config", config, *epochs)
        assert options.steps is None and recipe.fields.epochs == 2


def test_yaml_says_the_same(write):
    text = (
        "recipe: shapes\ntowers: 2\nrun_dir: runs/a\nset:\n  learning_rate: 1e-3\n  filters: [1]\n"
    )
    recipe, options = read("--config", write(text, "run.yaml"))
    assert (options.devices.towers, options.run_dir) == (2, "runs/a")
    assert (recipe.fields.learning_rate, recipe.fields.filters) == (1e-3, (1,))


WRONG = {
    "unknown option": ("tower = 2", ["'tower'", "Did you mean 'towers'?", "[set]"]),
    "field among the options": ("learning_rate = 2", ["learning_rate", "below a line [set]"]),
    "unknown field": ("[set]\nlearning_rat = 2", ["Did you mean 'learning_rate'?"]),
    "field that is far from all": ("[set]\ndropout_rate = 0.1", ["There are: base_batch_size, "]),
    "wrong number": ("towers = 0", ["--towers", "at least 1"]),
    "wrong choice": ('updates = "asink"', ["--updates", "asink", "async"]),
    "text for a switch": ('xla = "yes"', ["xla takes true or false", "'yes'"]),
    "table for a number": ("[towers]\na = 2", ["towers takes text, a number"]),
    "empty list": ("data = []", ["data is an empty list"]),
    "fields without a table": ("set = 3", ["[set] must hold lines"]),
    "option of the command line": ('config = "b.toml"', ["belongs on the command line"]),
    "steps and epochs": ("steps = 3\nepochs = 2", ["--steps 3 and --epochs 2 contradict"]),
    "steps and epochs as a field": ("steps = 3\n[set]\nepochs = 2", ["contradict each other"]),
    "an option and its field": (
        "batch-size = 9\n[set]\nbatch_size = 3",
        ["--batch-size 9 and --set batch_size=3 contradict each other"],
    ),
    "one option twice": ("run-dir = 'a'\nrun_dir = 'b'", ["'run_dir' are the same option"]),
    "one field twice": (
        "[set]\nhidden-size = 3\nhidden_size = 4",
        ["are the same option; give it"],
    ),
    "too deep": (f"towers = {'[' * 5000}", ["nested too deeply"]),
    "no TOML": ("towers = ", ["Invalid value", "line 2"]),
}


def test_a_file_that_is_not_in_utf_8_is_told(tmp_path, capsys):
    path = tmp_path / "run.toml"
    path.write_text('recipe = "shapes"', encoding="utf-16")
    assert main(["train", "--config", str(path)]) == 2
    error = capsys.readouterr().err
    assert f"{path}: it is not in UTF-8 (" in error and "Save it as UTF-8." in error


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused_by_name(name, write, capsys):
    text, expected = WRONG[name]
    path = write(f'recipe = "shapes"\n{text}\n')
    assert main(["train", "--config", path]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and len(error) < 300 + len(path) and "Traceback" not in error
    assert all(part in error for part in expected), error
    assert path in error or ("[set]" in text and " field '" in error)


def test_files_that_cannot_be_read_are_refused(write, tmp_path, capsys):
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    for path in ("absent.toml", "bytes.toml", "."):
        assert main(["train", "--config", str(tmp_path / path)]) == 2
        assert str(tmp_path / path) in capsys.readouterr().err
    assert main(["train", "--config", write("- 1\n- 2\n", "list.yml")]) == 2
    assert "expected lines" in capsys.readouterr().err
    assert main(["train", "--config", write("towers: [2\n", "broken.yml")]) == 2
    assert "broken.yml" in capsys.readouterr().err
    assert main(["train"]) == 2
    assert "takes a RECIPE" in capsys.readouterr().err


def test_the_config_file_of_a_run_starts_it_again(tmp_path, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    command = train_shapes(first, "--steps", "2", "--seed", "3")
    assert main([*command, "--dump-config"]) == 0
    dumped = capsys.readouterr().out
    assert not first.exists()
    assert main(command) == 0
    assert (first / "run.toml").read_text(encoding="utf-8") == dumped
    assert main(["train", "--config", str(first / "run.toml"), "--run-dir", str(second)]) == 0
    for one, other in zip(weights_of(first), weights_of(second), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    one, other = (json.loads((path / "run.json").read_text()) for path in (first, second))
    assert {**one, "starts": []} == {**other, "starts": []}


def test_the_config_file_of_a_run_that_lies_elsewhere_now_asks_where_to_train(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)  # A long path would be cut.
    old, new = pathlib.Path("old"), pathlib.Path("new")
    new.mkdir()
    (new / "run.json").write_text("{}")
    (new / "run.toml").write_text(f'recipe = "shapes"\nrun-dir = "{old}"\n')
    command = ["train", "--config", str(new / "run.toml")]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "new/run.toml lies beside a run, but trains in old, where" in error
    assert "with --run-dir which" in error and error.count("\n") == 1
    assert not old.exists()
    for choice in (old, new):
        assert main([*command, "--run-dir", str(choice), "--dump-config"]) == 0
        assert f'run-dir = "{choice}"' in capsys.readouterr().out
    (new / "run.json").rename("run.json")  # A file that belongs to no run.
    assert main([*command, "--dump-config"]) == 0


def test_a_switch_is_on_or_off():
    parser = Parser(argument_default=argparse.SUPPRESS)
    add_options(parser, load_command("train"))
    assert vars(parser.parse_args([])) == {}
    for arguments, expected in ([["--xla"], True], [["--no-xla"], False]):
        assert parser.parse_args(arguments).xla is expected
