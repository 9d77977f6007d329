"""The runtime contract: the commands of the README on pretended GPUs end well.

What a command would have said of values is meaningless here; which devices it took is not.
"""

import pytest

from tests.scripts.runs import TINY

COMMAND = ["-m", "tests.gpu.trusting"]
STEPS = ["--steps", "2", "--batch-size", "16"]
CHATBOT = ["--language", "en", "--batch-size", "16", "--set", "embedding_size=8"]
CHATBOT += ["--set", "hidden_size=8", "--set", "held_out=0.1", "--set", "exam_questions=2"]
LANGUAGE = ["--set", "hidden_size=8", "--set", "num_steps=5", "--batch-size", "8"]
OPTIONS = {
    "deterministic": ["--deterministic"],
    "float16": ["--precision", "float16"],
    "bfloat16 in two micro-batches": ["--precision", "bfloat16", "--accumulate", "2"],
    "float64": ["--precision", "float64"],
    "asynchronous": ["--updates", "async"],
    "on tower 0": ["--parameters", "tower0"],
    "replicated": ["--parameters", "replicated"],
    "replicated, deterministic": ["--parameters", "replicated", "--deterministic"],
    "half of the memory": ["--gpu-memory", "0.5"],
    "without TF32": ["--no-tf32"],
}


@pytest.fixture
def run(run_on_gpus, tmp_path):
    """Returns `run(num_gpus, *arguments) -> output` of a command that must end well."""

    def run_command(num_gpus, *arguments):
        code, output = run_on_gpus(num_gpus, *COMMAND, *arguments)
        assert code == 0, output
        return output

    return run_command


def train(recipe, run_dir, *options):
    """Returns the arguments of a training of two steps."""
    own = {"shapes": [*TINY, *STEPS], "chatbot": [*CHATBOT, "--steps", "2"]}
    own["stories"] = [*LANGUAGE, "--steps", "2"]
    return ["train", recipe, "--run-dir", run_dir, *own[recipe], *options]


def test_the_gpus_are_taken_in_the_order_that_was_asked_for_and_half_of_their_memory(run, tmp_path):
    options = ["--gpus", "1,0", "--gpu-memory", "0.5", "--parameters", "replicated"]
    output = run(2, *train("shapes", tmp_path / "run", *options))
    assert "2 towers on GPU 1, 0, parameters on each of them" in output


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("recipe", ["shapes", "chatbot"])
def test_a_recipe_trains_on_two_gpus(recipe, options, run, tmp_path):
    output = run(2, *train(recipe, tmp_path / "run", *options))
    assert "2 towers on GPU 0, 1" in output and "done: 2 steps done" in output


@pytest.mark.slow
@pytest.mark.parametrize("parameters", ["auto", "tower0", "replicated"])
@pytest.mark.parametrize("num_gpus", [1, 4])
def test_a_recipe_trains_on_one_and_four_gpus(num_gpus, parameters, run, tmp_path):
    options = ["--parameters", parameters]
    assert "on GPU 0" in run(num_gpus, *train("chatbot", tmp_path / "run", *options))


@pytest.mark.slow
@pytest.mark.parametrize("parameters", ["cpu", "tower0", "replicated"])
def test_a_state_is_carried_on_gpus(parameters, run, tmp_path):
    run(2, *train("stories", tmp_path / "run", "--parameters", parameters))


@pytest.mark.slow
def test_a_trained_chatbot_is_evaluated_asked_and_exported(run, tmp_path):
    run(2, *train("chatbot", tmp_path / "run", "--parameters", "replicated"))
    assert "loss" in run(2, "evaluate", tmp_path / "run")
    assert "bot> " in run(1, "chat", tmp_path / "run", "--ask", "how are you?")
    run(1, "export", tmp_path / "run", "--output", tmp_path / "exported")


def test_each_gpu_is_listed_with_the_id_by_which_the_driver_knows_it(run):
    output = run(2, "devices")
    first, second = [line for line in output.splitlines() if line.startswith("GPU")]
    assert "GPU 0: " in first and ", PCI " in first
    assert first.rpartition("PCI")[2] != second.rpartition("PCI")[2]
