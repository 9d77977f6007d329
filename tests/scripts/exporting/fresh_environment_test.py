"""Exports of every kind, loaded in a new environment that has TensorFlow and, for Chinese, jieba.

pytest -m slow tests/scripts/exporting/fresh_environment_test.py
"""

import io
import json
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.programs import run
from tests.scripts.exporting.elsewhere import CLASSIFY, CONTINUE, run_elsewhere
from tests.scripts.runs import train_shapes
from towers.data.images import cifar10
from towers.data.samples import shapes
from towers.data.text import LineCodec
from towers.scripts.main import main

SIZES = ["embedding_size=8", "hidden_size=8", "held_out=0.1"]
QUESTION = "今天是一号吗"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment into which pip has put TensorFlow and jieba alone."""
    folder = tmp_path_factory.mktemp("environment") / "fresh"
    run([sys.executable, "-m", "venv", folder])
    python = folder / "bin" / "python"
    install = [python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*install, f"tensorflow=={tf.__version__}", "jieba"])
    assert "No module named 'towers'" in run([python, "-I", "-c", "import towers"], code=1)
    return python


def export(run_dir, *options):
    """Returns the folder of a run's export."""
    folder = run_dir.with_name(f"{run_dir.name}_export")
    assert main(["export", str(run_dir), "--output", str(folder), *options]) == 0
    return folder


@pytest.mark.parametrize("network", ["recurrent", "transformer"])
@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_chatbot_answers_as_the_command_does(
    python, tmp_path, capsys, monkeypatch, language, network
):
    corpus = tmp_path / "corpus.tsv"
    pairs = [(f"今天是{day}号吗", f"是{day}号。") for day in "一二三四五六七八九十" for _ in "123"]
    corpus.write_text("".join(f"{question}\t{answer}\n" for question, answer in pairs))
    monkeypatch.chdir(tmp_path)
    command = ["train", "chatbot", "--language", language, "--data", str(corpus), "--steps", "9"]
    for field in (*SIZES, f"network={network}"):
        command += ["--set", field]
    assert main([*command, "--run-dir", "run"]) == 0
    folder = export(tmp_path / "run", "--beam", "3", "--nbest", "2")
    questions = f"{QUESTION}\n\n你好\t你好。\t今天是五号吗\n"
    (tmp_path / "questions").write_text(questions)
    said = run(["sh", "-c", f"{python} -I {folder}/answer.py < questions"])
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdin", io.StringIO(questions))
    assert main(["chat", "run", "--stdin", "--beam", "3", "--nbest", "2"]) == 0
    assert said == capsys.readouterr().out
    assert len(said.splitlines()[0].split("\t")) == 2


def test_a_language_model_continues_a_prompt_as_the_command_does(python, tmp_path, capsys):
    run_dir = tmp_path / "run"
    small = ["--set", "hidden_size=8", "--batch-size", "16"]
    assert main(["train", "stories", "--steps", "2", "--run-dir", str(run_dir), *small]) == 0
    folder = export(run_dir, "--nbest", "2", "--max-length", "7", "--top-k", "5")
    text = LineCodec.load(folder / "vocabulary")
    prompt = text.encode("the kite")
    read = [json.loads((folder / "settings.json").read_text())["start_id"], *prompt]
    samples = run_elsewhere(
        CONTINUE, folder / "model", json.dumps(read), folder=tmp_path, python=python
    )
    capsys.readouterr()
    generate = ["generate", str(run_dir), "--prompt", "the kite", "--num-samples", "2"]
    generate += ["--length", "7", "--top-k", "5", "--temperature", "1", "--seed", "3"]
    assert main(generate) == 0
    assert capsys.readouterr().out == "".join(
        f"[{number}]\n{text.decode([*prompt, *ids])}\n" for number, ids in enumerate(samples, 1)
    )


def test_an_image_network_classifies_pixels_as_its_evaluation_does(python, tmp_path, capsys):
    run_dir = tmp_path / "run"
    assert main(train_shapes(run_dir, "--steps", "4")) == 0
    folder = export(run_dir)
    test = cifar10.load(shapes.folder(), "test")
    np.save(tmp_path / "images.npy", test.images)
    found = run_elsewhere(
        CLASSIFY, folder / "model", tmp_path / "images.npy", folder=tmp_path, python=python
    )
    assert found["names"] == ["classify", "serving_default"] and found["same"]
    capsys.readouterr()
    assert main(["evaluate", str(run_dir), "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out.splitlines()[-1])
    accuracy = np.mean(np.array(found["classes"]) == test.labels)
    np.testing.assert_allclose(accuracy, metrics["accuracy"], atol=1e-6)
