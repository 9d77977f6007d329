"""The language model from a text to more text: train, go on, evaluate, generate."""

import dataclasses
import json
import math
import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.curves import read_scalars
from tests.scripts.runs import arrays_of
from towers.data.prepared import prepare_words
from towers.data.reading.word_files import read_words
from towers.data.samples import stories
from towers.ground.special_ids import PAD
from towers.ground.special_ids import WORD_END as END
from towers.ground.special_ids import WORD_UNKNOWN as UNKNOWN
from towers.models.decoding import Decoding
from towers.scripts.commands.generate import generate
from towers.scripts.main import main
from towers.scripts.recipes import ptb_small
from towers.scripts.training.catalogue import find_recipe
from towers.scripts.training.options import ModelOptions
from towers.scripts.training.saved_run import open_model

TINY = ["--batch-size", "7", "--set", "hidden_size=12", "--set", "num_steps=10"]
TINY += ["--set", "schedule=constant"]  # A cosine would depend on how many steps are asked for.
LINES = {"train": 150, "validation": 30, "test": 20}
NUM_STEPS = 30  # An epoch has 21 steps.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The beginnings of the stories, in files."""
    path = tmp_path_factory.mktemp("text")
    for part, number in LINES.items():
        lines = stories.text(part).splitlines(keepends=True)[:number]
        (path / f"{part}.txt").write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def train(folder):
    def run(run_dir, *arguments):
        command = ["train", "stories", "--data", str(folder), "--run-dir", str(run_dir), *TINY]
        return main([*command, *arguments])

    return run


@pytest.fixture(scope="module")
def finished(train, tmp_path_factory):
    """A run on two towers that was never interrupted."""
    path = tmp_path_factory.mktemp("runs") / "finished"
    assert train(path, "--steps", str(NUM_STEPS), "--towers", "2", "--report-every", "1") == 0
    return path


def last_object(capsys):
    last = capsys.readouterr().out.splitlines()[-1]
    return json.loads(last, parse_constant=pytest.fail)  # NaN and Infinity are no JSON.


@pytest.mark.filterwarnings("ignore:A learning rate")
@pytest.mark.parametrize(("rate", "is_finite"), [("50", True), ("1000", False)])
def test_a_perplexity_of_any_size_is_short_and_json(train, tmp_path, capsys, rate, is_finite):
    assert train(tmp_path, "--steps", "1", "--set", f"learning_rate={rate}", "--json") == 0
    assert last_object(capsys)["step"] == 1
    assert main(["evaluate", str(tmp_path)]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert "perplexity" in line and not re.search(r"\d{9}", line)
    assert main(["evaluate", str(tmp_path), "--json"]) == 0
    assert (last_object(capsys)["perplexity"] is not None) == is_finite


@pytest.mark.slow
def test_a_run_that_goes_on_in_the_middle_of_an_epoch_ends_bit_identical(train, finished, tmp_path):
    """The evaluations in between disturb nothing that the training carries."""
    for steps in ("25", str(NUM_STEPS)):
        options = ["--steps", steps, "--towers", "2", "--report-every", "1"]
        options += ["--evaluate-every", "4"]
        assert train(tmp_path / "run", *options) == 0
    step, expected = arrays_of(finished)
    assert step == NUM_STEPS and any(name.startswith("carried/") for name in expected)
    _, actual = arrays_of(tmp_path / "run")
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array, err_msg=name)
    curves = [
        read_scalars(path / "summaries", "average")["loss"] for path in (tmp_path / "run", finished)
    ]
    assert curves[0] == curves[1] and len(curves[1]) == NUM_STEPS


@pytest.mark.slow
def test_a_checkpoint_of_three_towers_goes_on_on_others(train, tmp_path, capsys):
    assert train(tmp_path / "3", "--steps", "8", "--towers", "3") == 0
    for num_towers in ("1", "4"):
        shutil.copytree(tmp_path / "3", tmp_path / num_towers)
    for num_towers in ("1", "3", "4"):
        assert train(tmp_path / num_towers, "--steps", "12", "--towers", num_towers) == 0
        assert "continues at step 8" in capsys.readouterr().out
    step, expected = arrays_of(tmp_path / "3")
    assert step == 12
    for num_towers in ("1", "4"):
        _, actual = arrays_of(tmp_path / num_towers)
        for name, array in expected.items():
            np.testing.assert_allclose(actual[name], array, rtol=0, atol=1e-5, err_msg=name)


def oracle(run_dir, tokens):
    """Returns the mean loss of a text that the run's model reads at once, from its beginning."""
    model = open_model(ModelOptions(str(run_dir), "latest"), command="generate").model
    logits = model(np.concatenate([[END], tokens[:-1]])[None].astype("int32"))[0].numpy()
    logits = logits.astype(float)
    log_likely = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -log_likely[np.arange(len(tokens)), tokens].mean()


@pytest.mark.parametrize("part", ["validation", pytest.param("test", marks=pytest.mark.slow)])
def test_perplexity_counts_every_token_of_a_text_once(part, finished, folder, tmp_path, capsys):
    tokens = prepare_words(read_words(folder), 10000, tmp_path).part(part)
    evaluate = ["evaluate", str(finished), "--json", "--checkpoint", "latest"]
    assert main([*evaluate, "--set", f"part={part}"]) == 0
    output = capsys.readouterr().out
    report = json.loads(output.splitlines()[-1])
    text = (folder / f"{part}.txt").read_text()
    assert report["tokens"] == len(text.split()) + LINES[part] == len(tokens)
    assert report["loss"] == pytest.approx(oracle(finished, tokens), rel=1e-5)
    assert report["perplexity"] == pytest.approx(math.exp(report["loss"]))
    assert report["unknown_rate"] == pytest.approx(np.mean(tokens == UNKNOWN))
    assert f"{len(tokens)} tokens" in output and report["part"] == part
    assert f"{part:<5} | step {NUM_STEPS} | " in output
    if part == "validation":
        step, perplexity = read_scalars(finished / "summaries", "evaluation")["perplexity"][-1]
        assert (step, perplexity) == (NUM_STEPS, pytest.approx(report["perplexity"], rel=1e-5))


def test_a_dynamic_evaluation_follows_the_text_and_leaves_the_run_as_it_is(finished, capsys):
    losses = []
    for options in ([], ["--dynamic", "1e-9"], ["--dynamic", "0.005"], []):
        assert main(["evaluate", str(finished), "--json", *options]) == 0
        losses.append(last_object(capsys))
    before, hardly, dynamic, after = losses
    assert before == after
    assert hardly["loss"] == pytest.approx(before["loss"], rel=1e-5)
    assert hardly["tokens"] == dynamic["tokens"] == before["tokens"]
    assert dynamic["perplexity"] == pytest.approx(math.exp(dynamic["loss"]))
    assert dynamic["loss"] < 0.99 * before["loss"]


def test_what_reads_no_streams_is_not_evaluated_dynamically(train, tmp_path, capsys):
    assert train(tmp_path / "run", "--steps", "1", "--set", "form=sentences") == 0
    assert main(["evaluate", str(tmp_path / "run"), "--dynamic", "0.002"]) == 2
    assert "--dynamic is for language models that read streams" in capsys.readouterr().err


def test_more_rows_count_the_same_tokens(finished, capsys):
    evaluate = ["evaluate", str(finished), "--json", "--towers", "2"]
    assert main([*evaluate, "--set", "evaluation_rows=3"]) == 0
    several = last_object(capsys)
    assert main(evaluate) == 0
    alone = last_object(capsys)
    assert several["tokens"] == alone["tokens"]
    assert several["loss"] != alone["loss"]  # Where a stream begins, it knows nothing.
    assert several["loss"] == pytest.approx(alone["loss"], rel=0.02)


@pytest.mark.slow
def test_sentences_train_and_count_every_token_once(train, folder, tmp_path, capsys):
    sentences = ["--set", "form=sentences", "--steps", "4", "--towers", "3"]
    assert train(tmp_path / "run", *sentences) == 0
    assert not any(name.startswith("carried") for name in arrays_of(tmp_path / "run")[1])
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    evaluated = last_object(capsys)
    tokens = prepare_words(read_words(folder), 10000, tmp_path).part("validation")
    assert evaluated["tokens"] == len(tokens)


def test_ptb_recipes_have_the_sizes_and_schedules_of_the_paper():
    sizes = {"small": (200, 20, 13, 5), "medium": (650, 35, 39, 5), "large": (1500, 35, 55, 10)}
    for name, (hidden_size, num_steps, epochs, norm) in sizes.items():
        fields = find_recipe(f"ptb_{name}").fields
        assert (fields.hidden_size, fields.num_steps) == (hidden_size, num_steps)
        assert fields.epochs == epochs == fields.boundaries[-1] + 1
        # A sum over the steps of a stream has num_steps times the gradient of the mean.
        assert fields.learning_rate == num_steps
        assert fields.clip_norm * num_steps == pytest.approx(norm)


# Generating.


@pytest.fixture(scope="module")
def opened(finished):
    return open_model(ModelOptions(str(finished)), command="generate")


def sample(opened, decoding, prompt, seed=0):
    return generate(opened, decoding, prompt, seed)


def test_the_likeliest_words_follow_the_prompt(opened):
    prompt = opened.text.encode("one morning anna")
    (written,) = sample(opened, Decoding(top_k=1, max_length=12), prompt)
    read = [END, *prompt]
    for word in written:
        logits = opened.model(np.array([read], np.int32))[0, -1].numpy()
        logits[[PAD, UNKNOWN]] = -np.inf
        assert word == logits.argmax()
        read.append(word)
    assert len(written) == 12


def test_samples_differ_from_each_other_and_are_drawn_from_the_seed(opened):
    decoding = Decoding(n_best=3, temperature=1.0, max_length=20)
    samples = sample(opened, decoding, [], seed=1)
    assert len({tuple(one) for one in samples}) == 3
    assert sample(opened, decoding, [], seed=1) == samples
    assert sample(opened, decoding, [], seed=2) != samples
    assert not {PAD, UNKNOWN} & {word for one in samples for word in one}


def test_frequencies_are_those_of_the_model(opened):
    """The first word of many samples, against the softmax that it is drawn from."""
    decoding = Decoding(n_best=4000, temperature=0.5, max_length=1)
    first = np.array(sample(opened, decoding, [], seed=3))[:, 0]
    logits = opened.model(np.array([[END]], np.int32))[0, 0].numpy() / 0.5
    logits[[PAD, UNKNOWN]] = -np.inf
    expected = tf.nn.softmax(logits).numpy()
    counted = np.bincount(first, minlength=len(expected)) / len(first)
    np.testing.assert_allclose(counted, expected, rtol=0, atol=0.03)


def test_the_command_prints_prompt_and_continuation(finished, capsys):
    command = ["generate", str(finished), "--prompt", "one morning anna", "--length", "9"]
    assert main([*command, "--num-samples", "2", "--top-p", "0.9", "--seed", "5"]) == 0
    output = capsys.readouterr().out
    assert output.count("one morning anna ") == 2
    first, second = output.split("[2]\n")
    assert first.startswith("[1]\none morning anna ") and second.startswith("one morning anna ")
    assert main([*command, "--num-samples", "2", "--top-p", "0.9", "--seed", "5"]) == 0
    assert capsys.readouterr().out == output
    assert main(["generate", str(finished), "--prompt", "one  morning", "--length", "1"]) == 0
    assert capsys.readouterr().out.startswith("one  morning ")


# What cannot work.


def refuse(arguments, capsys, *expected):
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert code == 2, captured
    assert captured.err.startswith("towers: error: ") and captured.err.count("\n") == 1
    for part in expected:
        assert part in captured.err


@pytest.mark.parametrize(
    "overrides, expected",
    [
        (["form=lines"], ["Field form must be one of streams, sentences. Received 'lines'"]),
        (["part=dev"], ["train, validation, test", "'dev'"]),
        (["num_steps=0"], ["num_steps must be a whole number of at least 1. Received 0"]),
        (["num_steps=5000"], ["needs 35000 tokens", "The text has"]),
        (["hidden_size=0"], ["hidden_size must be a whole number of at least 1"]),
        (["evaluation_rows=0"], ["num_rows must be a whole number of at least 1"]),
        (["vocabulary_size=1"], ["size must be at least 3"]),
        (["dropout_rate=1"], ["dropout_rate must be in [0, 1)"]),
    ],
)
def test_a_wrong_field_is_refused(overrides, expected, folder, tmp_path, capsys):
    command = ["train", "ptb_small", "--data", folder, "--run-dir", tmp_path / "run", *TINY]
    settings = [part for override in overrides for part in ("--set", override)]
    refuse([*command, *settings], capsys, *expected)
    assert not (tmp_path / "run").exists()


def test_the_share_of_unknown_tokens_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fields = dataclasses.replace(ptb_small.RECIPE.fields, vocabulary_size=5, batch_size=2)
    data = ptb_small.make_batches(fields, {"train": "a b c d e f\n" * 40, "validation": "a g\n"}, 0)
    assert data.summary.startswith(
        "42.86% of the tokens are unknown; then a perplexity says little"
    )
    found = ptb_small.derive_metrics({"loss": 1.0}, data)
    assert found == {"perplexity": math.e, "unknown_rate": 1 / 3}


def test_nothing_is_prepared_for_a_wrong_form(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("towers.scripts.recipes.ptb_small.CACHE", tmp_path / "prepared")
    for part in ("train", "valid", "test"):
        (tmp_path / f"ptb.{part}.txt").write_text("a b\n" * 400)
    command = ["train", "ptb_small", "--data", str(tmp_path), "--run-dir", str(tmp_path / "run")]
    assert main([*command, "--set", "form=sentence"]) == 2
    assert "Did you mean sentences?" in capsys.readouterr().err
    assert not (tmp_path / "prepared").exists()


def test_missing_and_bad_files_are_named(folder, tmp_path, capsys):
    command = ["train", "ptb_small", "--run-dir", tmp_path / "run", "--data"]
    refuse([*command, tmp_path / "nowhere"], capsys, "nowhere has no file ptb.train.txt", "--data")
    (tmp_path / "train.txt").write_bytes(b"\x80\x81")
    refuse([*command, tmp_path], capsys, "train.txt: expected UTF-8 text, found")


def test_a_run_speaks_with_its_own_command(finished, tmp_path, capsys):
    refuse(["chat", finished], capsys, "is a run of stories", f"towers generate {finished}")
    refuse(["generate", tmp_path], capsys, "holds no run")
    refuse(["generate", finished, "--top-p", "1.5"], capsys, "top_p must be above 0 and at most 1")


def test_another_vocabulary_is_refused(finished, folder, tmp_path, capsys):
    other = shutil.copytree(folder, tmp_path / "other")
    with (other / "train.txt").open("a") as file:
        file.write("some other words\n")
    refuse(["evaluate", finished, "--data", other], capsys, "a different vocabulary")
    command = ["train", "stories", "--data", other, "--run-dir", finished, *TINY]
    refuse([*command, "--steps", "40"], capsys, "a different vocabulary", "--init-from")


def test_a_changed_test_text_is_evaluated_with_the_vocabulary_of_the_run(
    finished, folder, tmp_path, capsys
):
    other = shutil.copytree(folder, tmp_path / "other")
    pathlib.Path(other / "test.txt").write_text("anna met ben .\nstrange words .\n")
    evaluate = ["evaluate", str(finished), "--data", str(other), "--set", "part=test", "--json"]
    assert main(evaluate) == 0
    assert last_object(capsys)["tokens"] == 9
