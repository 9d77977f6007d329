"""`towers export`: a trained model as a folder that needs only TensorFlow.

towers export runs/shapes
towers export runs/shapes --format litert
towers export runs/chatbot --output bot --beam 5
"""

from __future__ import annotations

import dataclasses
import errno
import glob
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from towers.ground.durable import publish
from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.options.setting import Folder
from towers.scripts.shown import show
from towers.scripts.training.catalogue import find_recipe
from towers.scripts.training.options import ModelOptions, SearchOptions
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.wrong_input import WrongInputError, wrong_input

NAMES = {  # All that an export may hold.
    *("model", "model.weights.h5", "model.tflite", "model.onnx", "settings.json", "README.md"),
    *("vocabulary", "towers", "answer.py"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions(ModelOptions):
    """The model, and where to export it.

    Attributes:
        output: the folder (default: RUN_DIR/export).
        overwrite: replace the export in the folder.
        format: saved_model; or litert (TFLite) or onnx, which adds a file of an image network.
    """

    decoding: SearchOptions
    output: Folder | None = None
    overwrite: bool = False
    format: Literal["saved_model", "litert", "onnx"] = "saved_model"


def run(options: ExportOptions) -> int:
    """Writes the export and prints how to use it."""
    import_tensorflow_quietly()
    folder = Path(options.output or Path(options.run_dir) / "export")
    with wrong_input():  # Such as a file of the data that is gone.
        write = choose_writer(options)
    if folder.exists():
        check_replaced(folder, overwrite=options.overwrite)
    with wrong_input(OSError):  # Such as a folder that cannot be made.
        line = publish_whole(write, folder)
    show(f"exported to {folder}; {line.format(folder=shlex.quote(str(folder)))}")
    return 0


def check_replaced(folder: Path, *, overwrite: bool) -> None:
    """Raises WrongInputError unless the folder is an export, nothing else, and to be replaced."""
    own = (folder / "model" / "saved_model.pb", folder / "settings.json")
    others = sorted({path.name for path in folder.iterdir()} - NAMES) if folder.is_dir() else []
    if not all(file.exists() for file in own):
        more = "; it is not an export"
    elif others:
        more = f"; it also holds what is not the export's: {', '.join(others[:3])}"
    elif overwrite:
        return
    else:
        more = ", or replace it with --overwrite"
    raise WrongInputError(f"{folder} exists already. Choose another with --output{more}.")


def choose_writer(options: ExportOptions) -> Callable[[Path], str]:
    """Returns `write(folder)` for a run; it returns a line about what it wrote.

    Raises:
        ValueError: the run has no checkpoint, or the options of decoding do not fit it.
        OSError: a file of the data cannot be read.
    """
    from towers.scripts.exporting import writers
    from towers.scripts.training.saved_run import open_model

    recipe, decoding = find_recipe(RunDirectory(options.run_dir).read()["recipe"]), options.decoding
    if not recipe.command:
        if decoding != SearchOptions():
            raise ValueError(f"A run of {recipe.name} has no text; leave out the decoding options.")
        return writers.classifier_writer(options, options.format)
    if options.format != "saved_model":
        raise ValueError(
            f"--format {options.format} is for image networks. Received a run of {recipe.name}."
        )
    opened = open_model(options, command=recipe.command)
    if decoding.seed:
        raise ValueError(
            "An export keeps no seed: its signature takes one with each call. Received --seed "
            f"{decoding.seed}; leave it out."
        )
    if recipe.command == "chat":
        return writers.chatbot_writer(opened, decoding)
    return writers.language_model_writer(opened, decoding)


def publish_whole(write: Callable[[Path], str], folder: Path) -> str:
    """Writes a folder that is there as a whole or not at all; returns what `write` returns.

    What a killed process left of this folder is removed.
    """
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    for leftover in folder.parent.glob(f".{glob.escape(folder.name)}.*.tmp"):
        number = leftover.name.removeprefix(f".{folder.name}.").removesuffix(".tmp")
        if number.isdigit() and not is_running(int(number)):
            shutil.rmtree(leftover, ignore_errors=True)
    try:
        line = write(unfinished)
        if folder.exists():  # It is to be replaced, now that the new one is whole.
            shutil.rmtree(folder)
        publish(unfinished, folder)
    except Exception as error:
        full = os.strerror(errno.ENOSPC)
        if full in str(error):  # TensorFlow and HDF5 have errors of their own for it.
            raise OSError(errno.ENOSPC, full) from error
        raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return line


def is_running(process_id: int) -> bool:
    """Returns whether another process has this number."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # It is somebody else's.
        return True
    return process_id != os.getpid()
