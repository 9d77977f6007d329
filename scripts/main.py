"""The `towers` command: reads the command line and calls what was asked for."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence

from towers.scripts.commands.option_types import (
    int_list,
    name_list,
    positive_float,
    positive_int,
    seed_number,
)
from towers.scripts.commands.options import (
    add_data_options,
    add_decoding_options,
    add_device_options,
    add_engine_options,
    add_json_option,
    add_recipe_options,
    add_text_options,
)
from towers.scripts.quiet import import_tensorflow_quietly

WRONG_INPUT = 2
FAILED = 1
WITHOUT_TENSORFLOW = ("recipes", "download", "launch")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, 1 if it failed, 2 for wrong input."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    try:
        command = load_command(options.command)
        code = command(options) or 0
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return leave_quietly()
    except (ValueError, OSError, ImportError) as error:
        return fail(error, WRONG_INPUT)
    except RuntimeError as error:
        return fail(error, FAILED)
    except KeyboardInterrupt:
        print("towers: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if not type(error).__module__.startswith("tensorflow."):
            raise
        return fail(error, FAILED)  # Such as no memory, or a device that is lost.


def leave_quietly() -> int:
    """Returns the exit code of who writes to a pipe that nobody reads, such as to `head`."""
    with contextlib.suppress(OSError):  # Whoever calls `main` may have replaced it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # For what is buffered.
    return 128 + signal.SIGPIPE


def fail(error: Exception, code: int) -> int:
    """Prints an error in one line (with its traceback if TOWERS_TRACEBACK is set)."""
    if os.environ.get("TOWERS_TRACEBACK"):
        traceback.print_exception(error)
    print(f"towers: error: {error}", file=sys.stderr)
    return code


def load_command(name: str):  # type: ignore[no-untyped-def]
    """Returns the function behind a command; only now are TensorFlow and the rest imported."""
    if name not in WITHOUT_TENSORFLOW:
        import_tensorflow_quietly()
    return importlib.import_module(f"towers.scripts.commands.{name}").run


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="towers",
        description="Trains models on several GPUs with one tower per GPU.",
        epilog="`towers COMMAND --help` explains a command.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_recipes(commands)
    add_prepare(commands)
    add_train(commands)
    add_launch(commands)
    add_evaluate(commands)
    add_chat(commands)
    add_generate(commands)
    add_export(commands)
    add_devices(commands)
    add_download(commands)
    add_benchmark(commands)
    return parser


def add_recipes(commands: argparse._SubParsersAction) -> None:
    """Adds `towers recipes`."""
    parser = commands.add_parser("recipes", help="list the recipes, or the fields of one")
    parser.add_argument("recipe", metavar="RECIPE", nargs="?", help="show its fields")


def add_prepare(commands: argparse._SubParsersAction) -> None:
    """Adds `towers prepare`."""
    parser = commands.add_parser(
        "prepare",
        help="read and tokenise a corpus once, ahead of the training",
        description="Turns a corpus into the cache that the training reads. `towers train` does "
        "it by itself when it is needed.",
    )
    parser.add_argument("recipe", metavar="RECIPE", help="such as chatbot")
    parser.add_argument("--processes", type=positive_int, metavar="N", help="default: one a core")
    add_data_options(parser)
    add_text_options(parser)


def add_train(commands: argparse._SubParsersAction) -> None:
    """Adds `towers train`."""
    parser = commands.add_parser(
        "train",
        help="train a recipe, or continue its run",
        description="Trains a recipe. The same command continues a run that was interrupted.",
    )
    parser.add_argument("recipe", metavar="RECIPE", help="see `towers recipes`")
    parser.add_argument("--run-dir", metavar="DIR", help="default: runs/RECIPE")
    parser.add_argument("--epochs", type=positive_int, metavar="E")
    parser.add_argument("--steps", type=positive_int, metavar="S", help="instead of epochs")
    add_recipe_options(parser)
    add_device_options(parser)
    add_engine_options(parser)
    group = parser.add_argument_group("reports, evaluations and checkpoints")
    group.add_argument("--report-every", type=positive_int, metavar="STEPS", default=50)
    group.add_argument("--evaluate-every", type=positive_int, metavar="STEPS",
                       help="default: every epoch")  # fmt: skip
    group.add_argument("--early-stopping", type=positive_int, metavar="N",
                       help="stop after N evaluations without a better one")  # fmt: skip
    group.add_argument("--checkpoint-every", type=positive_int, metavar="STEPS",
                       help="default: every epoch")  # fmt: skip
    group.add_argument("--checkpoint-minutes", type=positive_float, metavar="M", default=10.0)


def add_launch(commands: argparse._SubParsersAction) -> None:
    """Adds `towers launch`."""
    parser = commands.add_parser(
        "launch",
        help="train with several processes, on this machine or on several",
        usage="towers launch [options] -- train RECIPE ...",
        description="Starts one process per GPU, or per share of the cores. Each has towers of "
        "its own and its part of every batch; they train one model.",
    )
    parser.add_argument("--processes", type=positive_int, metavar="N",
                        help="how many here (default: one per GPU of --gpus, or 2)")  # fmt: skip
    parser.add_argument("--gpus", type=int_list, metavar="LIST",
                        help="dealt to the processes in order")  # fmt: skip
    parser.add_argument("--log-dir", default="logs", metavar="DIR",
                        help="where worker.0.log, ... go (default: logs)")  # fmt: skip
    parser.add_argument("--cluster", type=name_list, metavar="HOST:PORT,...",
                        help="several machines, a process on each")  # fmt: skip
    parser.add_argument("--index", type=int, metavar="I",
                        help="which address of the cluster this machine is, from 0")  # fmt: skip
    parser.add_argument("command_line", nargs=argparse.REMAINDER, metavar="-- train ...",
                        help="the same on every machine")  # fmt: skip


def add_evaluate(commands: argparse._SubParsersAction) -> None:
    """Adds `towers evaluate`."""
    parser = commands.add_parser("evaluate", help="evaluate a run on its test data")
    parser.add_argument("run_dir", metavar="RUN_DIR")
    parser.add_argument("--data", metavar="PATH", nargs="+",
                        help="default: where the run was trained from")  # fmt: skip
    parser.add_argument("--checkpoint", choices=("best", "latest"), default="best")
    parser.add_argument("--batch-size", type=positive_int, metavar="B")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE",
                        dest="overrides", help="a field, such as part=test")  # fmt: skip
    add_json_option(parser)
    add_device_options(parser)


def add_chat(commands: argparse._SubParsersAction) -> None:
    """Adds `towers chat`."""
    parser = commands.add_parser("chat", help="talk to a chatbot that was trained")
    parser.add_argument("run_dir", metavar="RUN_DIR")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--ask", nargs="+", metavar="QUESTION",
                       help="say these one after the other, instead of typing")  # fmt: skip
    group.add_argument("--stdin", action="store_true",
                       help="one answer per line of input; TAB parts turns")  # fmt: skip
    parser.add_argument("--checkpoint", choices=("best", "latest"), default="best")
    add_decoding_options(parser)
    add_device_options(parser)


def add_generate(commands: argparse._SubParsersAction) -> None:
    """Adds `towers generate`."""
    parser = commands.add_parser("generate", help="write on from a prompt, by a language model")
    parser.add_argument("run_dir", metavar="RUN_DIR")
    parser.add_argument("--prompt", default="", metavar="TEXT", help="words parted by blanks")
    parser.add_argument("--length", type=positive_int, default=50, metavar="N", help="words")
    parser.add_argument("--num-samples", type=positive_int, default=1, metavar="M")
    parser.add_argument("--temperature", type=positive_float, default=1.0, metavar="T")
    parser.add_argument("--top-k", type=positive_int, metavar="K",
                        help="sample of the K likeliest words; 1: no chance")  # fmt: skip
    parser.add_argument("--top-p", type=positive_float, metavar="P",
                        help="sample of the likeliest words that hold the share P")  # fmt: skip
    parser.add_argument("--seed", type=seed_number, default=0, metavar="S")
    parser.add_argument("--checkpoint", choices=("best", "latest"), default="best")
    add_device_options(parser)


def add_export(commands: argparse._SubParsersAction) -> None:
    """Adds `towers export`."""
    parser = commands.add_parser(
        "export", help="write a chatbot as a SavedModel that answers without this package"
    )
    parser.add_argument("run_dir", metavar="RUN_DIR")
    parser.add_argument("--output", metavar="DIR", help="default: RUN_DIR/export")
    parser.add_argument("--checkpoint", choices=("best", "latest"), default="best")
    add_decoding_options(parser)


def add_devices(commands: argparse._SubParsersAction) -> None:
    """Adds `towers devices`."""
    parser = commands.add_parser("devices", help="list the devices that TensorFlow finds")
    add_json_option(parser)


def add_download(commands: argparse._SubParsersAction) -> None:
    """Adds `towers download`."""
    parser = commands.add_parser("download", help="download a data set from its official address")
    parser.add_argument("name", metavar="NAME", help="mnist, fashion_mnist, cifar10 or ptb")
    parser.add_argument("--data", metavar="DIR", help="default: datasets/NAME")
    parser.add_argument("--url", metavar="URL", help="another address that serves the same files")


def add_benchmark(commands: argparse._SubParsersAction) -> None:
    """Adds `towers benchmark`."""
    parser = commands.add_parser(
        "benchmark", help="time a recipe's step on towers, and against other ways"
    )
    parser.add_argument("recipe", metavar="RECIPE")
    parser.add_argument("--towers", type=int_list, default=[1, 2], metavar="N,N",
                        help="numbers of towers to compare (default: 1,2)")  # fmt: skip
    parser.add_argument("--against", type=name_list, default=[], metavar="NAME,NAME",
                        help="plain, fit, mirrored, mirrored_fit")  # fmt: skip
    parser.add_argument("--slow", type=positive_float, metavar="FACTOR",
                        help="instead: synchronous and asynchronous towers, the last one so many "
                             "times slower than the others")  # fmt: skip
    parser.add_argument("--repetitions", type=positive_int, default=10)
    parser.add_argument("--steps", type=positive_int, default=20, help="steps in a repetition")
    add_recipe_options(parser)
    add_json_option(parser)


if __name__ == "__main__":
    sys.exit(main())
