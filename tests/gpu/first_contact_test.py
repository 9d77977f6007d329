"""What a newcomer with GPUs does first, on pretended ones: train, launch, export."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.gpu.budgets_test import check_replicated
from tests.scripts.runs import TINY, train_shapes
from towers.scripts import bootstrap
from towers.scripts.main import main

COMMAND = ["-m", "towers.scripts.main"]
SCATTER = "TensorScatterSub"  # Its deterministic kernel goes by the host.


@pytest.fixture(scope="module")
def steps(run_on_gpus):
    """The end of a program that runs steps of a language model on two GPUs, and what it tells."""
    tokens = 64 * 32  # Of a tower; so many rows its `tf.where` finds.
    code, output = run_on_gpus(2, "-m", "tests.gpu.steps_worker", PRETENDED_COUNT=str(tokens))
    facts = {}
    for line in output.splitlines():
        if line.startswith("{"):
            facts.update(json.loads(line))
    return code, output, facts


def fact(steps, name):
    """Returns what the program told, or fails with all that it printed."""
    _, output, facts = steps
    assert name in facts, output
    return facts[name]


@pytest.mark.slow
def test_nothing_travels_between_towers_that_read_from_the_cpu(steps):
    assert fact(steps, "peer_bytes") == 0


def test_each_tower_runs_all_of_its_kernels_on_its_own_gpu(steps):
    first, second = fact(steps, "kernels")
    assert first == second
    assert any("RNN" in name for name in first)  # Loops too: of the layer, and of the loss.
    assert any("GenerateNormalizedProb" in name for name in first), first  # Of a softmax.


def test_the_projection_travels_once_a_step_and_tower(steps):
    """The loss takes it in a loop, whose body runs for each chunk of the tokens."""
    assert fact(steps, "projections") == 1


def test_a_step_with_a_copy_on_every_gpu_keeps_its_budgets(steps):
    check_replicated(fact(steps, "budgets"))


def test_a_language_model_trains_deterministically(steps):
    code, output, _ = steps
    assert code == 0, output


def test_only_a_deterministic_gpu_does_without_the_scatter_of_the_loss(steps):
    """CPUs keep it; where no device is said, TensorFlow takes the GPU."""
    ops = fact(steps, "loss_ops")
    having = {device for device in ops if SCATTER in ops[device]}
    assert having == {"CPU:0"}


@pytest.mark.slow
def test_the_first_command_takes_the_gpus_that_are_there(run_on_gpus, tmp_path):
    """With other data and sizes, since the chatbot's shapes follow from values."""
    first = [word for word in bootstrap.JOBS["train"][0] if word not in ("--language", "en")]
    first[first.index("chatbot")] = "shapes"
    run_dir = ["--run-dir", tmp_path / "run"]
    code, output = run_on_gpus(1, *first, *run_dir, *TINY, "--steps", "1")
    assert code == 0, output
    assert "shapes: 1 tower on GPU 0" in output


@pytest.mark.slow
def test_launched_processes_train_on_a_gpu_each(run_on_gpus, tmp_path):
    command = train_shapes(tmp_path / "run", "--steps", "2")
    launch = ["launch", "--processes", "2", "--gpus", "0,1", "--log-dir", tmp_path / "logs"]
    code, output = run_on_gpus(2, *COMMAND, *launch, "--", *command)
    assert code == 0, output
    for worker in range(2):
        log = (tmp_path / "logs" / f"worker.{worker}.log").read_text()
        assert f"1 tower on GPU {worker}" in log and "done: 2 steps done" in log


@pytest.mark.slow
def test_an_export_from_a_gpu_machine_answers_on_a_cpu(run_on_gpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus = tmp_path / "corpus.tsv"
    corpus.write_text("".join(f"say w{number}\tw{number} .\n" for number in range(40)))
    train = ["train", "chatbot", "--language", "en", "--data", str(corpus), "--steps", "1"]
    sizes = ["embedding_size=8", "hidden_size=8", "held_out=0.1"]
    train += [word for size in sizes for word in ("--set", size)]
    assert main([*train, "--run-dir", str(tmp_path / "run")]) == 0
    code, output = run_on_gpus(
        1, *COMMAND, "export", tmp_path / "run", "--output", tmp_path / "gpu"
    )
    assert code == 0, output
    assert b"Cudnn" not in (tmp_path / "gpu/model/saved_model.pb").read_bytes()
    assert main(["export", str(tmp_path / "run"), "--output", str(tmp_path / "cpu")]) == 0
    questions, seed = tf.constant([[4, 5, 6]]), tf.constant([0, 0], tf.int64)
    loaded = [tf.saved_model.load(tmp_path / name / "model") for name in ("gpu", "cpu")]
    actual, expected = [one.answer(questions, seed) for one in loaded]
    np.testing.assert_array_equal(actual.ids, expected.ids)
    np.testing.assert_array_equal(actual.scores, expected.scores)
