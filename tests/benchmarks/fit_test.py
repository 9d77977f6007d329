"""Keras's `fit` trains a recipe on the batches, from the values and with the loss of the towers."""

import json

import numpy as np
import pytest

from tests.benchmarks.commands import TINY, refuse, write_output
from tests.curves import read_scalars
from tests.programs import exit_code
from towers.scripts.main import main as towers_main

IMAGES = ["shapes", *TINY, "--set", "optimizer=sgd", "--set", "schedule=constant"]
SENTENCES = ["stories", "--set", "form=sentences", "--set", "hidden_size=12", "--batch-size", "64"]
SENTENCES += ["--set", "optimizer=sgd", "--set", "schedule=constant", "--set", "dropout_rate=0"]


def epoch_of_fit(options, folder):
    """Returns the metrics of an epoch.

    In a process of its own: MirroredStrategy remembers the shapes and types of an earlier one.
    """
    file = folder / "results.jsonl"
    command = ["fit", *options, "--epochs", "1", "--results", str(file)]
    assert exit_code(write_output, folder / "output.txt", command) == 0
    (row,) = json.loads(file.read_text())["results"]
    return row


def epoch_of_towers(options, folder):
    """Returns the losses of an epoch's steps on two towers, and that of the test data after it."""
    command = ["train", *options, "--epochs", "1", "--towers", "2", "--report-every", "1"]
    assert towers_main([*command, "--run-dir", str(folder / "run")]) == 0
    summaries = folder / "run" / "summaries"
    curves = [read_scalars(summaries, name)["loss"] for name in ("average", "evaluation")]
    steps, tested = ([value for _, value in curve] for curve in curves)
    return steps, tested[-1]


@pytest.mark.parametrize("replicas", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_an_epoch_of_images_has_the_losses_of_the_towers(replicas, tmp_path):
    row = epoch_of_fit([*IMAGES, "--towers", replicas], tmp_path)
    steps, tested = epoch_of_towers(IMAGES, tmp_path)
    np.testing.assert_allclose(row["train"]["loss"], np.mean(steps), rtol=1e-4)
    np.testing.assert_allclose(row["test"]["loss"], tested, rtol=1e-4)


@pytest.mark.slow
def test_an_epoch_of_sentences_ends_like_one_on_towers(tmp_path):
    """The loss of an epoch is a mean over its tokens, of which each step has others."""
    row = epoch_of_fit(SENTENCES, tmp_path)
    _, tested = epoch_of_towers(SENTENCES, tmp_path)
    np.testing.assert_allclose(row["test"]["loss"], tested, rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shapes", "--set", "optimizer=lazy_adam"], "optimizer=lazy_adam"),
        (["mnist", "--set", "label_smoothing=0.1"], "label_smoothing"),
        (["images", "--data", ".", "--set", "multi_label=true"], "multi_label"),
        (["stories"], "carries no state"),
    ],
)
def test_what_fit_cannot_train_is_refused(arguments, message, capsys):
    assert message in refuse(["fit", *arguments], capsys)


def test_wrong_data_is_refused_in_one_message(capsys):
    assert "no/such" in refuse(["fit", "mnist", "--data", "no/such"], capsys)
