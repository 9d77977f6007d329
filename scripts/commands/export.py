"""`towers export`: a trained model as a folder that needs TensorFlow alone."""

from __future__ import annotations

import argparse
import dataclasses
import glob
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from towers.ground.durable import publish
from towers.scripts.options.flags import add_flags, read_options
from towers.scripts.options.setting import Folder
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.shown import show
from towers.scripts.training.options import DecodingOptions, ModelOptions, SearchOptions
from towers.scripts.wrong_input import WrongInputError, wrong_input


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions(ModelOptions):
    """The model, and the place of its export.

    Attributes:
        decoding: how a chatbot answers; the export keeps it.
        output: the folder (default: RUN_DIR/export).
    """

    decoding: SearchOptions
    output: Folder | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_flags(parser, ExportOptions)


def run(given: argparse.Namespace) -> int:
    """Writes the export and prints how to use it."""
    import_tensorflow_quietly()
    from towers.scripts.exporting.kinds import choose_writer

    options = read_options(ExportOptions, given)
    folder = Path(options.output or Path(options.run_dir) / "export")
    with wrong_input():  # Such as a file of the data that is gone.
        write = choose_writer(options, read_options(DecodingOptions, given))
    if folder.exists():
        raise WrongInputError(
            f"{folder} exists already. Remove it, or choose another with --output."
        )
    with wrong_input(OSError):  # Such as a folder that cannot be made.
        line = publish_whole(write, folder)
    show(f"exported to {folder}; {line.format(folder=folder)}")
    return 0


def publish_whole(write: Callable[[Path], str], folder: Path) -> str:
    """Writes a folder that is there as a whole or not at all; returns what `write` returns.

    What a process left that was killed while it wrote this folder is removed.
    """
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    for leftover in folder.parent.glob(f".{glob.escape(folder.name)}.*.tmp"):
        number = leftover.name.removeprefix(f".{folder.name}.").removesuffix(".tmp")
        if number.isdigit() and not is_running(int(number)):
            shutil.rmtree(leftover, ignore_errors=True)
    try:
        line = write(unfinished)
        publish(unfinished, folder)
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
