"""The runtime contract: the commands of the README on pretended GPUs end well.

What a command would have said of values is meaningless here; which devices it took is not.
"""

import pytest

from tests.scripts.runs import TINY

COMMAND = ["-m", "tests.gpu.trusting"]
# Copies between the GPUs are taken to be right; what NCCL sums is looked at.
UNTRUSTED = ["-c", "from towers.devices import placement; from towers.scripts.main import main; "
             "placement.wrong_sums = lambda devices: []; import sys; sys.exit(main())"]  # fmt: skip
STEPS = ["--steps", "2", "--batch-size", "16"]
CHATBOT = ["--language", "en", "--batch-size", "16", "--set", "embedding_size=8"]
CHATBOT += ["--set", "hidden_size=8", "--set", "held_out=0.1"]
LANGUAGE = ["--set", "hidden_size=8", "--set", "num_steps=5", "--batch-size", "8"]
REPLICATED = ["--parameters", "replicated"]
TRAININGS = {
    "deterministic": ("chatbot", 2, ["--deterministic"]),
    "deterministic copies": ("shapes", 2, [*REPLICATED, "--deterministic"]),
    "float16": ("chatbot", 2, ["--precision", "float16", "--accumulate", "2"]),
    "bfloat16": ("shapes", 2, ["--precision", "bfloat16", "--parameters", "tower0"]),
    "float64": ("chatbot", 2, ["--precision", "float64"]),
    "asynchronous": ("shapes", 2, ["--updates", "async"]),
    "without TF32": ("shapes", 2, ["--no-tf32", "--batch-norm", "first"]),
    "a state, beside the CPU": ("stories", 2, ["--parameters", "cpu"]),
    "a state, in copies": ("stories", 2, REPLICATED),
    "one GPU": ("chatbot", 1, []),
    "four GPUs": ("chatbot", 4, []),
    "four copies": ("shapes", 4, REPLICATED),
    "four copies summed by NCCL": ("shapes", 4, ["--exchange", "nccl"]),
    "float16 summed by NCCL": ("chatbot", 2, ["--exchange", "nccl", "--precision", "float16"]),
}


@pytest.fixture
def run(run_on_gpus, tmp_path):
    """Returns `run(num_gpus, *arguments) -> output` of a command that must end well."""
    lines = "".join(f"say w{number}\tw{number} .\n" for number in range(40))
    (tmp_path / "corpus.tsv").write_text(lines)

    def run_command(num_gpus, *arguments):
        code, output = run_on_gpus(num_gpus, *COMMAND, *arguments)
        assert code == 0, output
        return output

    return run_command


def train(recipe, run_dir, *options):
    """Returns the arguments of a training of two steps."""
    own = {"shapes": [*TINY, *STEPS], "chatbot": [*CHATBOT, "--steps", "2"]}
    own["chatbot"] += ["--data", run_dir.parent / "corpus.tsv"]
    own["stories"] = [*LANGUAGE, "--steps", "2"]
    return ["train", recipe, "--run-dir", run_dir, *own[recipe], *options]


@pytest.mark.slow
def test_the_gpus_are_taken_in_the_order_that_was_asked_for_and_half_of_their_memory(run, tmp_path):
    options = ["--gpus", "1,0", "--gpu-memory", "0.5", "--parameters", "replicated"]
    output = run(2, *train("shapes", tmp_path / "run", *options))
    assert "2 towers on GPU 1, 0, parameters on each of them" in output
    assert "done: 2 steps done" in output


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "num_gpus", "options"), TRAININGS.values(), ids=TRAININGS)
def test_a_recipe_trains_on_gpus(recipe, num_gpus, options, run, tmp_path):
    output = run(num_gpus, *train(recipe, tmp_path / "run", *options))
    gpus = ", ".join(map(str, range(num_gpus)))
    assert f"{num_gpus} tower{'s' * (num_gpus > 1)} on GPU {gpus}" in output
    assert "done: 2 steps done" in output


@pytest.mark.slow
@pytest.mark.parametrize("network", ["recurrent", "transformer"])
def test_a_chatbot_of_a_gpu_is_evaluated_asked_and_exported_there(network, run, tmp_path):
    run_dir = tmp_path / "run"
    run(2, *train("chatbot", run_dir, *REPLICATED, "--set", f"network={network}"))
    assert "exact_match" in run(2, "evaluate", run_dir)
    for options in ([], ["--beam", "3"], ["--temperature", "0.8", "--top-k", "5"]):
        answers = run(1, "chat", run_dir, *options, "--ask", "say w1", "say w2").splitlines()
        assert len(answers) >= 2, answers
    run(1, "export", run_dir, "--output", tmp_path / "exported")


@pytest.mark.slow
def test_a_language_model_of_a_gpu_is_evaluated_and_writes_there(run, tmp_path):
    run_dir = tmp_path / "run"
    run(2, *train("stories", run_dir, *REPLICATED))
    for options in ([], ["--dynamic", "0.001"]):
        assert "perplexity" in run(2, "evaluate", run_dir, *options)
    run(1, "generate", run_dir, "--prompt", "the")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "fault"),
    [
        ({"PRETENDED_NCCL": "0"}, "they failed to sum known values"),
        ({}, "came out wrong on /GPU:0"),
    ],
)
def test_nccl_that_does_not_work_is_an_error_with_a_remedy(
    environment, fault, run_on_gpus, tmp_path
):
    """Pretended sums are wrong also where they can be made."""
    command = train("shapes", tmp_path / "run", "--exchange", "nccl", *REPLICATED)
    code, output = run_on_gpus(2, *UNTRUSTED, *command, **environment)
    assert code == 2 and fault in output, output
    assert "pip install tensorflow[and-cuda]" in output and "--exchange packs" in output


@pytest.mark.slow
def test_each_gpu_is_listed_with_the_id_by_which_the_driver_knows_it(run):
    output = run(2, "devices")
    first, second = [line for line in output.splitlines() if line.startswith("GPU")]
    assert "GPU 0: " in first and ", PCI " in first
    assert first.rpartition("PCI")[2] != second.rpartition("PCI")[2]
