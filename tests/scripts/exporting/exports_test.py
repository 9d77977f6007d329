"""Exports of image networks and language models, loaded where only TensorFlow is."""

import functools
import importlib.util
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf

from tests.programs import PATIENCE
from tests.scripts.exporting.elsewhere import CLASSIFY, CONTINUE, run_elsewhere
from tests.scripts.runs import train_shapes
from towers.data.images import cifar10
from towers.data.samples import shapes
from towers.data.text import LineCodec
from towers.scripts.commands import export
from towers.scripts.exporting.files import Failures, add_erfc
from towers.scripts.main import main
from towers.scripts.training.options import DeviceOptions, EvaluateOptions
from towers.scripts.training.saved_run import open_evaluation
from towers.scripts.wrong_input import WrongInputError


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """The run of an image network and its export."""
    folder = tmp_path_factory.mktemp("classifier")
    assert main(train_shapes(folder / "run", "--steps", "4")) == 0
    assert main(["export", str(folder / "run"), "--output", str(folder / "export")]) == 0
    assert set(os.listdir(folder / "export")) <= export.NAMES
    return folder


@pytest.mark.slow
def test_an_image_network_classifies_pixels_as_its_evaluation_does(classifier, tmp_path, capsys):
    test = cifar10.load(shapes.folder(), "test")
    np.save(tmp_path / "images.npy", test.images)
    found = run_elsewhere(
        CLASSIFY, classifier / "export" / "model", tmp_path / "images.npy", folder=tmp_path
    )
    assert found["names"] == ["classify", "serving_default"] and found["same"]
    np.testing.assert_allclose(np.sum(found["probabilities"], 1), 1, rtol=1e-5)
    np.testing.assert_array_equal(np.argmax(found["probabilities"], 1), found["classes"])
    capsys.readouterr()
    assert main(["evaluate", str(classifier / "run"), "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out.splitlines()[-1])
    accuracy = np.mean(np.array(found["classes"]) == test.labels)
    np.testing.assert_allclose(accuracy, metrics["accuracy"], atol=1e-6)


def test_the_weights_can_be_loaded_by_keras(classifier):
    options = EvaluateOptions(str(classifier / "run"), devices=DeviceOptions(towers=1))
    model = open_evaluation(options)[0].model
    expected = [variable.numpy() for variable in model.variables]
    for variable in model.variables:
        variable.assign(variable * 0)
    with warnings.catch_warnings():  # As in the export.
        warnings.simplefilter("ignore", DeprecationWarning)
        model.load_weights(classifier / "export" / "model.weights.h5")
    for variable, value in zip(model.variables, expected, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_an_export_of_an_image_network_names_its_classes(classifier):
    settings = json.loads((classifier / "export" / "settings.json").read_text())
    assert settings["classes"] == list(cifar10.load(shapes.folder(), "test").class_names)


def test_a_readme_beside_the_model_tells_its_step_result_versions_and_signature(classifier):
    text = (classifier / "export" / "README.md").read_text()
    assert text.startswith("# shapes, step 4\n")
    assert f"tensorflow {tf.__version__}" in text and "test accuracy 0." in text
    assert "| input | `images` | uint8 | (None, 32, 32, 3) |" in text
    assert "| output | `probabilities` | float32 | (None, 10) |" in text


def run_litert(path, images):
    interpreter = tf.lite.Interpreter(str(path))
    return interpreter.get_signature_runner()(images=images)


def run_onnx(path, images):
    session = pytest.importorskip("onnxruntime").InferenceSession(str(path))
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, {"images": images}), strict=True))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
@pytest.mark.parametrize(
    ("file_format", "name", "run_file"),
    [("litert", "model.tflite", run_litert), ("onnx", "model.onnx", run_onnx)],
)
def test_a_file_for_other_runtimes_says_what_the_saved_model_says(
    file_format, name, run_file, classifier, tmp_path, capfd
):
    command = ["export", str(classifier / "run"), "--output", str(tmp_path / "export")]
    code = main([*command, "--format", file_format])
    if importlib.util.find_spec("tf2onnx") is None and file_format == "onnx":
        assert code == 2 and not (tmp_path / "export").exists()
        (line,) = capfd.readouterr().err.splitlines()
        assert "needs tf2onnx. Install it in your clone with: pip install -e '.[onnx]'" in line
        pytest.skip("tf2onnx is not installed: the rest of the test writes and runs a file")
    assert code == 0 and set(os.listdir(tmp_path / "export")) <= export.NAMES
    images = cifar10.load(shapes.folder(), "test").images[:7]
    found = run_file(tmp_path / "export" / name, images)
    saved = tf.saved_model.load(str(tmp_path / "export" / "model"))
    expected = saved.classify(images)
    np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=1e-5)
    np.testing.assert_array_equal(found["classes"], expected["classes"])
    told = (tmp_path / "export" / "README.md").read_text()
    assert f"\n`{name}` returns the same for `images`, uint8 (None, 32, 32, 3).\n" in told


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_a_file_of_a_network_that_was_trained_in_16_bits_computes_in_32(tmp_path):
    """LiteRT's own operations know no bfloat16."""
    run, output = tmp_path / "run", tmp_path / "export"
    assert main(train_shapes(run, "--steps", "1", "--precision", "bfloat16")) == 0
    assert main(["export", str(run), "--output", str(output), "--format", "litert"]) == 0
    images = cifar10.load(shapes.folder(), "test").images[:3]
    saved = tf.saved_model.load(str(output / "model"))
    found = run_litert(output / "model.tflite", images)
    expected = saved.classify(images)["probabilities"]
    np.testing.assert_allclose(found["probabilities"], expected, atol=0.01)


@pytest.mark.parametrize("file_format", ["litert", "onnx"])
def test_a_file_of_a_network_of_float64_is_refused(file_format, tmp_path, capfd):
    run, output = tmp_path / "run", tmp_path / "export"
    assert main(train_shapes(run, "--steps", "1", "--precision", "float64")) == 0
    capfd.readouterr()
    code = main(["export", str(run), "--output", str(output), "--format", file_format])
    if importlib.util.find_spec("tf2onnx") is None and file_format == "onnx":
        pytest.skip("tf2onnx is not installed")
    assert code == 2 and not output.exists()
    assert f"--format {file_format} takes no network of float64" in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_gelu_is_written_as_onnx_and_what_onnx_lacks_is_refused(tmp_path):
    convert = pytest.importorskip("tf2onnx").convert
    values = np.linspace(-4, 4, 9, dtype=np.float32)

    def write(function):
        function = tf.function(function, autograph=False)
        signature = [tf.TensorSpec([9], name="images")]
        with Failures():
            convert.from_function(function, signature, opset=15, output_path=tmp_path / "onnx")

    add_erfc()
    write(tf.nn.gelu)
    (found,) = run_onnx(tmp_path / "onnx", values).values()
    np.testing.assert_allclose(found, tf.nn.gelu(values), atol=1e-6)
    with pytest.raises(WrongInputError, match=r"ONNX cannot hold.*Lgamma"):
        write(tf.math.lgamma)


def test_the_command_that_asks_an_export_can_be_pasted(monkeypatch, tmp_path, capsys):
    def write(folder):
        folder.mkdir()
        return "ask it with: python {folder}/answer.py"

    monkeypatch.setattr(export, "choose_writer", lambda options: write)
    folder = str(tmp_path / "my bot")
    assert main(["export", "run", "--output", folder]) == 0
    command = capsys.readouterr().out.partition("ask it with: ")[2]
    assert shlex.split(command) == ["python", f"{folder}/answer.py"]


def test_an_image_network_takes_no_options_of_decoding(classifier, tmp_path, capsys):
    command = ["export", str(classifier / "run"), "--output", str(tmp_path / "export")]
    assert main([*command, "--beam", "3"]) == 2
    assert "has no text; leave out the decoding options" in capsys.readouterr().err
    assert not (tmp_path / "export").exists()


@pytest.mark.slow
def test_a_language_model_continues_a_prompt_as_the_command_does(tmp_path, capsys):
    run, output = str(tmp_path / "run"), str(tmp_path / "export")
    small = ["--set", "hidden_size=8", "--batch-size", "16"]
    assert main(["train", "stories", "--steps", "2", "--run-dir", run, *small]) == 0
    sampling = ["--nbest", "2", "--max-length", "7", "--top-k", "5"]
    assert main(["export", run, "--output", output, *sampling]) == 0
    assert set(os.listdir(output)) <= export.NAMES
    text = LineCodec.load(tmp_path / "export" / "vocabulary")
    start = json.loads((tmp_path / "export" / "settings.json").read_text())["start_id"]
    prompt = text.encode("the kite")
    model = tmp_path / "export" / "model"
    samples = run_elsewhere(CONTINUE, model, json.dumps([start, *prompt]), folder=tmp_path)
    capsys.readouterr()
    generate = ["generate", run, "--prompt", "the kite", "--num-samples", "2", "--length", "7"]
    assert main([*generate, "--top-k", "5", "--temperature", "1", "--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert said == "".join(
        f"[{number}]\n{text.decode([*prompt, *ids])}\n" for number, ids in enumerate(samples, 1)
    )
    rule = ["--no-repeat-ngram", "1", "--max-length", "9"]
    assert main(["export", run, "--output", f"{output}1", *rule]) == 0
    model = tmp_path / "export1" / "model"
    (ids,) = run_elsewhere(CONTINUE, model, json.dumps([start, *prompt]), folder=tmp_path)
    assert len(set(ids)) == len(ids)
    for option, message in (
        ("--beam", "A language model samples"),
        ("--length-penalty", "a language model samples"),
        ("--seed", "An export keeps no seed"),
    ):
        assert main(["export", run, "--output", f"{output}2", option, "2"]) == 2
        assert message in capsys.readouterr().err

    assert main(["export", run, "--output", f"{output}2", "--format", "onnx"]) == 2
    assert "--format onnx is for image networks" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_the_program_of_a_chatbot_has_a_prompt_and_ends_with_ctrl_c(tmp_path):
    corpus = tmp_path / "corpus.tsv"
    corpus.write_text("".join(f"say w{number}\tw{number} .\n" for number in range(40)))
    sizes = ["embedding_size=8", "hidden_size=8", "held_out=0.1"]
    run, output = str(tmp_path / "run"), str(tmp_path / "export")
    train = ["train", "chatbot", "--language", "en", "--data", str(corpus), "--steps", "1"]
    train += [word for size in sizes for word in ("--set", size)]
    assert main([*train, "--run-dir", run]) == 0
    assert main(["export", run, "--output", output]) == 0
    terminal, its_end = os.openpty()
    command = [sys.executable, f"{output}/answer.py"]
    ends = {"stdin": its_end, "stdout": its_end, "stderr": its_end}
    # Whoever started the tests in the background made them deaf to interrupts.
    hears = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, **ends, preexec_fn=hears) as process:
        os.close(its_end)
        try:
            first = read_until(terminal, "you> ")
            assert "Type a message; Ctrl-D ends" in first
            os.write(terminal, b"say w3\n")
            assert "bot> " in read_until(terminal, "you> ")
            assert interrupt(process, terminal) == 130
        finally:
            process.kill()
            os.close(terminal)


def interrupt(process, terminal):
    """Returns the exit status of a program that is interrupted while it waits for input.

    A signal between the prompt and the reading of it is seen at the next one only. A program that
    has seen it ends its line.
    """
    patience = 2
    while patience < PATIENCE:
        process.send_signal(signal.SIGINT)
        if select.select([terminal], [], [], patience)[0]:
            return process.wait(PATIENCE)
        patience *= 2
    raise TimeoutError("The program does not end.")


def read_until(terminal, text):
    """Returns what a program writes to its terminal up to a text."""
    said = ""
    while not said.endswith(text):
        said += os.read(terminal, 4096).decode()
    return said
