"""The recipe language_model from files to more text, by each of its networks."""

import json
import math
import os
import shutil

import numpy as np
import pytest

from tests.data.prepared.text_helpers import write_stories
from tests.paths import ROOT
from tests.programs import TOWERS
from tests.programs import run as run_program
from tests.scripts.runs import arrays_of, killed_twice
from towers.models.decoding import Decoding
from towers.scripts.commands.generate import generate
from towers.scripts.main import main
from towers.scripts.training.options import ModelOptions
from towers.scripts.training.saved_run import open_model

TINY = {
    "hidden_size": 12,
    "embedding_size": 8,
    "num_layers": 1,
    "heads": 2,
    "key_value_heads": 1,
    "feed_forward_size": 16,
    "window": 9,
    "num_steps": 8,
    "vocabulary_size": 200,
    "evaluation_rows": 3,
    "held_out": 0.1,
    "schedule": "constant",  # A cosine would depend on how many steps are asked for.
}
NETWORKS = ("lstm", "awd_lstm", "transformer")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a text, in which the commands run."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "my_texts").mkdir()
    write_stories(folder / "my_texts" / "a.txt", 700)
    return folder


@pytest.fixture
def run(place, monkeypatch):
    monkeypatch.chdir(place)
    return lambda *arguments: main(list(map(str, arguments)))


def train(run_dir, *options, data="my_texts", **fields):
    """Returns the arguments of a small training."""
    settings = [f"--set={name}={value}" for name, value in {**TINY, **fields}.items()]
    return ["train", "language_model", "--data", data, "--run-dir", run_dir, "--batch-size", "6",
            *settings, *options]  # fmt: skip


def check_loss_and_text(run, run_dir, capsys):
    """The loss is that of streams read at once; the likeliest words are those that follow."""
    report = evaluate(run, run_dir, capsys)
    opened = open_model(ModelOptions(str(run_dir), "latest"), command="generate")
    assert report["perplexity"] == pytest.approx(math.exp(report["loss"]))
    assert 1 < report["character_perplexity"] < report["perplexity"]
    prompt = opened.text.encode("one morning anna")
    decoding = Decoding(top_k=1, max_length=12)
    (written,) = generate(opened, decoding, prompt, 0)
    read = [opened.text.begin, *prompt]
    for word in written:
        logits = opened.model(np.array([read], np.int32))[0, -1].numpy()
        logits[list(opened.text.unspoken)] = -np.inf
        assert word == logits.argmax()
        read.append(word)
    bias = opened.model.output_bias.numpy()
    opened.model.output_bias.assign(np.where(np.arange(len(bias)) == opened.text.stop, 99.0, bias))
    assert generate(opened, decoding, prompt, 0) == [[]]  # Its document ends.
    assert run("generate", run_dir, "--prompt", "one morning anna", "--length", "5") == 0
    assert capsys.readouterr().out.startswith("one morning anna")
    assert run("generate", run_dir, "--prompt", "\udcc4\udce3") == 2  # No UTF-8.
    assert "Expected text in UTF-8, found" in capsys.readouterr().err
    with pytest.warns(RuntimeWarning, match="2 of the 5 tokens of the prompt are unknown"):
        assert run("generate", run_dir, "--prompt", "one 你 morning 好 anna", "--length", "1") == 0
    return report


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(name, marks=() if name == "transformer" else pytest.mark.slow)
        for name in NETWORKS
    ],
)
def test_each_network_trains_on_two_towers_and_writes(run, tmp_path, capsys, network):
    options = ["--steps", "6", "--towers", "2"]
    assert run(*train(tmp_path / "run", *options, network=network)) == 0
    assert any(name.startswith("carried") for name in arrays_of(tmp_path / "run")[1])
    report = check_loss_and_text(run, tmp_path / "run", capsys)
    if network == "transformer":
        check_another_text(run, tmp_path, capsys)
    else:  # The run's own text is not evaluated whole, wherever it lies.
        shutil.copytree("my_texts", tmp_path / "moved")
        assert evaluate(run, tmp_path / "run", capsys, "--data", tmp_path / "moved") == report


def check_another_text(run, folder, capsys):
    """All of another file is evaluated, with the words of the run."""
    own = open_model(ModelOptions(str(folder / "run"), "latest"), command="generate").text
    lines = ["one morning anna sang 你", "a word", *["one morning"] * 9]
    (folder / "other.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = evaluate(run, folder / "run", capsys, "--data", folder / "other.txt")
    ids = [one for line in lines for one in [*own.encode(line), own.vocabulary.end]]
    assert report["tokens"] == len(ids) + 1 and report["part"] == "validation"
    unknown = ids.count(own.vocabulary.unknown) / (len(ids) + 1)
    assert report["unknown_rate"] == pytest.approx(unknown) and unknown
    options = ["--data", folder / "other.txt", "--dynamic", "0.001"]
    assert run("evaluate", folder / "run", *options) == 2
    assert "--dynamic needs the text of the training" in capsys.readouterr().err


def evaluate(run, run_dir, capsys, *options):
    capsys.readouterr()
    assert run("evaluate", run_dir, "--json", "--checkpoint", "latest", *options) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["streams", "pieces"])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_run_that_goes_on_ends_bit_identical(run, tmp_path, network, form):
    options = ["--towers", "2", "--deterministic"]
    for name, stops in (("whole", ["12"]), ("parts", ["5", "12"])):
        for steps in stops:
            command = train(tmp_path / name, "--steps", steps, *options, network=network, form=form)
            assert run(*command) == 0
    (step, expected), (_, actual) = (arrays_of(tmp_path / name) for name in ("whole", "parts"))
    assert step == 12 and actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_a_run_killed_twice_ends_bit_identical(place, tmp_path, network):
    """Streams with dropout and carried states, in processes of their own."""
    options = ["--towers", "2", "--deterministic", "--checkpoint-every", "3", "--steps", "24"]
    options += ["--report-every", "1", "--set", "dropout_rate=0.3"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def command(name):
        return [*TOWERS, *train(tmp_path / name, *options, network=network)]

    run_program(command("whole"), env=environment, cwd=place)
    assert "continues at step" in killed_twice(command("killed"), env=environment, cwd=place)
    (step, whole), (same, killed) = (arrays_of(tmp_path / name) for name in ("whole", "killed"))
    assert step == same == 24 and whole.keys() == killed.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(killed[name], array, err_msg=name)


@pytest.mark.slow
def test_pieces_count_every_token_once_on_three_towers(run, tmp_path, capsys):
    command = train(tmp_path / "run", "--steps", "4", "--towers", "3", form="pieces")
    assert run(*command) == 0
    assert not any(name.startswith("carried") for name in arrays_of(tmp_path / "run")[1])
    capsys.readouterr()
    for rows in ("1", "5"):  # They are of streams alone.
        settings = ["--set", f"evaluation_rows={rows}", "--json"]
        assert run("evaluate", tmp_path / "run", *settings) == 0
    one, other = (
        json.loads(line) for line in capsys.readouterr().out.splitlines() if line[:1] == "{"
    )
    assert one["tokens"] == other["tokens"] and one["loss"] == pytest.approx(other["loss"])


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({"form": "sentences"}, "Field form must be one of streams, pieces. Received 'sentences'"),
        ({"network": "gpt"}, "Field network must be one of lstm, awd_lstm, transformer"),
        ({"part": "dev"}, "The text has the parts train, validation, test. Received 'dev'"),
        ({"num_steps": 100000}, "give a longer text, fewer streams (--batch-size) or fewer tokens"),
        ({"heads": 5}, "size must be an even multiple of heads"),
        ({"held_out": 0}, "held_out must be above 0"),
        ({"data": "nowhere"}, "nowhere: expected a file or folder with text, found neither"),
        ({"tokenizer": "word"}, "tokenizer must be one of"),
    ],
)
def test_a_wrong_field_is_refused(run, tmp_path, capsys, fields, expected):
    assert run(*train(tmp_path / "run", **fields)) == 2
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_without_data_the_command_says_what_to_give(run, tmp_path, capsys):
    assert run("train", "language_model", "--run-dir", tmp_path / "run") == 2
    assert "give files or folders with --data" in capsys.readouterr().err


def test_a_file_whose_name_is_no_utf_8_is_trained_on_and_left_out_of_the_config(run, tmp_path):
    named = shutil.copy("my_texts/a.txt", tmp_path / "caf\udce9.txt")
    command = train(tmp_path / "run", "--steps", "1", data=named)
    assert run(*command) == 0
    assert "# data is not UTF-8" in (tmp_path / "run" / "run.toml").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["data"] == [str(named)]
    assert run("evaluate", tmp_path / "run") == 0


def test_a_quiet_training_prints_warnings_alone(run, tmp_path, capfd):
    english, chinese = tmp_path / "english.txt", tmp_path / "chinese.txt"
    write_stories(english, 300)
    chinese.write_text("".join(f"今天{i}下雨了我们在家里\n" for i in range(600)), encoding="utf-8")
    for data, expected in [(english, ""), (chinese, "warning: the language is ")]:
        command = train(tmp_path / data.stem, "--steps", "1", "--quiet", data=data, language="en")
        assert run(*command) == 0
        out = capfd.readouterr().out
        assert out.startswith(expected) and out.count("\n") == bool(expected), out


def test_prepare_makes_what_training_reads(run, place, capsys):
    command = ["prepare", "language_model", "--data", "my_texts", "--set", "vocabulary_size=150"]
    assert run(*command) == 0
    first = capsys.readouterr().out.splitlines()
    assert first[0].startswith("read 700 lines from 1 file: 1 document, ") and first[-1].startswith(
        "prepared in datasets"
    )
    assert run(*command) == 0
    assert capsys.readouterr().out.splitlines() == first
