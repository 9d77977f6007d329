"""Exports: a SavedModel that any device runs, the weights for Keras, and what else a use needs."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import towers
from towers import data, ground
from towers.data import text
from towers.ground.extras import import_extra
from towers.ground.private_apis import flatten_layers
from towers.ground.special_ids import PAD
from towers.models.decoding import Decoding, continuation
from towers.scripts.chatbot.answerer import decode_questions, make_decoding
from towers.scripts.chatbot.opening import read_context
from towers.scripts.classifying.predictions import class_names, classify_images
from towers.scripts.exporting.files import FILES, write_file
from towers.scripts.options.setting import arguments_for
from towers.scripts.training.options import (
    DecodingOptions,
    DeviceOptions,
    EvaluateOptions,
    ModelOptions,
    SearchOptions,
)
from towers.scripts.training.overview import read_overview
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.saved_run import OpenModel, open_evaluation

PROGRAM = Path(__file__).parent / "programs" / "answer.py"
LENGTH = 50  # Words, as `towers generate` writes by default.
WEIGHTS = "model.weights.h5"
MARGIN = 8192  # Bytes that HDF5 may need for each variable besides its values.


def chatbot_writer(opened: OpenModel, options: SearchOptions) -> Callable[[Path], str]:
    """Returns `write(folder)`, which exports a chatbot and returns a line about its program.

    It writes the model, the text settings, the code for both and a program that answers. The
    signature `answer` takes `questions`, int32 [batch, length], padded with 0, and `seed`, int64
    [2], and returns ids, scores and lengths as `towers.models.decoding.Decoded` has them.

    Raises:
        ValueError: the options are impossible, or the model answers no questions.
    """
    fields = opened.recipe.fields
    if fields.direction != "forward":
        raise ValueError(
            f"{opened.directory.path} was trained with direction={fields.direction}, so it "
            "reranks a chatbot's answers. Export the chatbot's own run."
        )
    decoding = make_decoding(
        DecodingOptions(**dataclasses.asdict(options)), fields.max_answer_length
    )
    settings = {
        "max_question_length": fields.max_question_length,
        "context": read_context(opened),
        "padding_id": PAD,
    }

    def write(folder: Path) -> str:
        answer = decode_questions(opened.model, decoding, opened.text.vocabulary)
        write_model(opened.model, {"answer": answer}, folder, about_run(opened), settings)
        opened.text.save(folder / "vocabulary")
        copy_code(folder)
        shutil.copy(PROGRAM, folder / PROGRAM.name)
        return f"ask it with: python {{folder}}/{PROGRAM.name}"

    return write


def copy_code(folder: Path) -> None:
    """Copies the modules that read and write text, under the names that they have in `towers`."""
    for package in (ground, data, text):
        source = Path(str(package.__file__)).parent
        target = folder.joinpath(*package.__name__.split("."))
        target.mkdir(parents=True)
        for module in [source / "__init__.py"] if package is data else source.glob("*.py"):
            shutil.copy(module, target / module.name)
    (folder / "towers" / "__init__.py").touch()


def classifier_writer(options: ModelOptions, file_format: str) -> Callable[[Path], str]:
    """Returns `write(folder)`, which exports an image network and returns a line about it.

    The signature `classify` takes `images` as the files of the data hold them, uint8 [batch,
    height, width, channels], or string [batch] for a recipe that reads picture files. It returns
    `probabilities`, float32 [batch, classes], and `classes`, int64 [batch], the most probable one
    of each. `settings.json` has the names of the classes.

    The run's data must be there, except for `images`: the network keeps how it prepares pixels.

    Args:
        file_format: of a file beside the SavedModel, one of `FILES`, which Keras writes. It takes
            `images` as the SavedModel does, or, where that reads picture files, the central square
            as the network sees it: float32 [batch, height, width, channels], 0 to 255.

    Raises:
        ValueError: the run, its checkpoint or its data cannot be used, or a library is missing.
        OSError: a file cannot be read.
    """
    if file_format == "onnx":
        import_extra("tf2onnx", "onnx", "--format onnx converts the network")
    session, checkpoint = open_evaluation(
        EvaluateOptions(options.run_dir, options.checkpoint, devices=DeviceOptions(towers=1))
    )

    def write(folder: Path) -> str:
        signatures = {"classify": classify_images(session)}
        about = (f"{session.recipe.name}, step {checkpoint.step}", RunDirectory(options.run_dir))
        settings = {"classes": list(class_names(session)), **(session.data.about or {})}
        write_model(session.model, signatures, folder, about, settings)
        if file_format in FILES:
            line = write_file(session, folder / FILES[file_format], file_format)
            with open(folder / "README.md", "a", encoding="utf-8") as file:
                file.write(f"\n{line}\n")
        return f"its signature classify takes {session.data.test.source.input_description}"

    return write


def language_model_writer(opened: OpenModel, options: SearchOptions) -> Callable[[Path], str]:
    """Returns `write(folder)`, which exports a language model and returns a line about it.

    It also writes the vocabulary, a word on each line, whose number from 0 is its id. The signature
    `continue_prompt` takes `read`, int32 [length], the start id and the ids of the prompt, and
    `seed`, int64 [2], and returns ids, scores and lengths of the samples.

    Raises:
        ValueError: the options are impossible.
    """
    if options.beam > 1:
        raise ValueError("A language model samples; leave out --beam.")
    if options.length_penalty != SearchOptions.length_penalty:
        raise ValueError(
            "--length-penalty is for beam search, and a language model samples; leave it out."
        )
    arguments = arguments_for(
        Decoding,
        options,
        n_best=options.nbest,
        temperature=options.temperature or 1.0,
        max_length=options.max_length or LENGTH,
    )
    decoding, text = Decoding(**arguments), opened.text

    def write(folder: Path) -> str:
        function = continuation(opened.model, decoding, text.unspoken, text.stop)
        signatures, settings = {"continue_prompt": function}, {"start_id": text.begin}
        write_model(opened.model, signatures, folder, about_run(opened), settings)
        text.save(folder / "vocabulary")
        return "its signature continue_prompt writes text"

    return write


def write_model(
    model: keras.Model,
    signatures: dict[str, Callable[..., Any]],
    folder: Path,
    about: tuple[str, RunDirectory],
    settings: dict[str, Any],
) -> None:
    """Writes `model/`, a SavedModel, `model.weights.h5`, `README.md` and `settings.json`.

    Args:
        signatures: `tf.function`s with an input signature. Each is an attribute of the loaded
            model and a signature of its name; the first is also the default one of TensorFlow
            Serving.
        folder: a new one.
        about: recipe, step and the run's directory, for README.md.
        settings: what else a use needs to know.
    """
    use_ops_of_every_device(model)
    module = tf.Module()
    module.weights = [variable.value for variable in model.variables]
    for name, function in signatures.items():
        setattr(module, name, function)
    default = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    named = {**signatures, default: next(iter(signatures.values()))}
    folder.mkdir(parents=True)  # Its error says more than TensorFlow's.
    tf.saved_model.save(module, str(folder / "model"), signatures=named)
    check_room(model, folder)
    with warnings.catch_warnings():  # Keras converts its variables in a way that NumPy deprecates.
        warnings.simplefilter("ignore", DeprecationWarning)
        model.save_weights(folder / WEIGHTS)
    (folder / "README.md").write_text(readme(signatures, *about), encoding="utf-8")
    text = json.dumps(settings, indent=2) + "\n"
    (folder / "settings.json").write_text(text, encoding="utf-8")


def check_room(model: keras.Model, folder: Path) -> None:
    """Raises OSError if the weights do not fit on the disk: HDF5 may crash there."""
    tensors = [variable.value for variable in model.variables]
    size = sum(one.shape.num_elements() * one.dtype.size + MARGIN for one in tensors)
    disk = shutil.disk_usage(folder)  # Some disks of a network tell nothing: all is 0.
    if disk.total and disk.free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def about_run(opened: OpenModel) -> tuple[str, RunDirectory]:
    """Returns the recipe and the step of a model, and its run's directory."""
    return opened.description.partition(" of ")[0], opened.directory


def readme(signatures: dict[str, Callable[..., Any]], title: str, directory: RunDirectory) -> str:
    """Returns what an export is: its run, what it needs, and its inputs and outputs."""
    run = read_overview(directory.path)
    versions = towers.checkpoints.package_versions()
    lines = [
        f"# {title}",
        f"Result of the run: {run.result or 'not evaluated'}.",
        f"Made with {', '.join(f'{name} {one}' for name, one in versions.items())}. It needs "
        "TensorFlow in this version or later: `tf.saved_model.load('model')`.",
    ]
    if "answer" in signatures:
        lines.append(f"`{PROGRAM.name}` asks it; for Chinese it also needs jieba.")
    for name, function in signatures.items():
        concrete = function.get_concrete_function()  # type: ignore[attr-defined]
        outputs = concrete.structured_outputs
        outputs = outputs if isinstance(outputs, dict) else outputs._asdict()
        inputs = {spec.name: spec for spec in concrete.structured_input_signature[0]}
        rows = [
            f"| {kind} | `{one}` | {spec.dtype.name} | {spec.shape} |"
            for kind, specs in (("input", inputs), ("output", outputs))
            for one, spec in specs.items()
        ]
        table = "\n".join(["| | name | dtype | shape |", "|---|---|---|---|", *rows])
        lines += [f"## Signature `{name}`", table]
    return "\n\n".join(lines) + "\n"


def use_ops_of_every_device(model: keras.Model) -> None:
    """Makes the recurrent layers use ops that every device has.

    Where there is a GPU, Keras builds their graph of cuDNN's kernels, which no CPU can run.
    """
    for layer in flatten_layers(model):
        if hasattr(layer, "use_cudnn"):
            layer.use_cudnn = False
