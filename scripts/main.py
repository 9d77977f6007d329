"""The `towers` command: reads the command line and calls what was asked for."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from scripts.quiet import import_tensorflow_quietly

WRONG_INPUT = 2
FAILED = 1
WITHOUT_TENSORFLOW = ("recipes", "download")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, 1 if it failed, 2 for wrong input."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    try:
        command = load_command(options.command)
        return command(options) or 0
    except (ValueError, OSError) as error:
        return fail(error, WRONG_INPUT)
    except RuntimeError as error:
        return fail(error, FAILED)
    except KeyboardInterrupt:
        print("towers: interrupted", file=sys.stderr)
        return 130


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
    module = {"recipes": "list_recipes"}.get(name, name)
    return importlib.import_module(f"scripts.{module}").run


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
    add_evaluate(commands)
    add_chat(commands)
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


def add_evaluate(commands: argparse._SubParsersAction) -> None:
    """Adds `towers evaluate`."""
    parser = commands.add_parser("evaluate", help="evaluate a run on its test data")
    parser.add_argument("run_dir", metavar="RUN_DIR")
    parser.add_argument("--data", metavar="PATH", nargs="+",
                        help="default: where the run was trained from")  # fmt: skip
    parser.add_argument("--checkpoint", choices=("best", "latest"), default="best")
    parser.add_argument("--batch-size", type=positive_int, metavar="B")
    add_json_option(parser)
    add_device_options(parser)


def add_chat(commands: argparse._SubParsersAction) -> None:
    """Adds `towers chat`."""
    parser = commands.add_parser("chat", help="talk to a chatbot that was trained")
    parser.add_argument("run_dir", metavar="RUN_DIR")
    parser.add_argument("--stdin", action="store_true",
                        help="one answer per line of input; TAB parts turns")  # fmt: skip
    parser.add_argument("--checkpoint", choices=("best", "latest"), default="best")
    add_decoding_options(parser)
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
    parser.add_argument("name", metavar="NAME", help="mnist, fashion_mnist or cifar10")
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
    parser.add_argument("--repetitions", type=positive_int, default=10)
    parser.add_argument("--steps", type=positive_int, default=20, help="steps in a repetition")
    add_recipe_options(parser)
    add_json_option(parser)


def add_recipe_options(parser: argparse.ArgumentParser) -> None:
    """Adds what changes a recipe's fields or data."""
    add_data_options(parser)
    parser.add_argument("--batch-size", type=positive_int, metavar="B",
                        help="examples in one update, over all towers")  # fmt: skip
    add_text_options(parser)


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Adds where the data is, and what sets any field."""
    parser.add_argument("--data", metavar="PATH", nargs="+",
                        help="the data's folder, or files (default: datasets/...)")  # fmt: skip
    parser.add_argument("--seed", type=seed_number, default=0, metavar="S")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE",
                        dest="overrides", help="any other field of the recipe")  # fmt: skip


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """Adds flags for fields that recipes with text have."""
    group = parser.add_argument_group("text", "fields of the recipes that have text")
    group.add_argument("--language", metavar="zh|en")
    group.add_argument("--kind", metavar="KIND", help="of the files (default: recognised)")
    group.add_argument("--encoding", metavar="CODEC", help="such as gb18030 (default: utf-8)")
    group.add_argument("--context", type=int, metavar="K", help="earlier turns in a question")


def add_decoding_options(parser: argparse.ArgumentParser) -> None:
    """Adds how answers are decoded."""
    group = parser.add_argument_group("decoding (default: greedy)")
    group.add_argument("--beam", type=positive_int, default=1, metavar="N", help="beam search")
    group.add_argument("--nbest", type=positive_int, default=1, metavar="N",
                       help="answers to a question, with scores")  # fmt: skip
    group.add_argument("--length-penalty", type=float, default=1.0, metavar="A",
                       help="exponent of Wu et al. 2016, for beams")  # fmt: skip
    group.add_argument("--temperature", type=positive_float, metavar="T", help="sample")
    group.add_argument("--top-k", type=positive_int, metavar="K", help="sample of the K likeliest")
    group.add_argument("--top-p", type=positive_float, metavar="P",
                       help="sample of the likeliest that hold the share P")  # fmt: skip
    group.add_argument("--no-repeat-ngram", type=positive_int, metavar="N",
                       help="say no sequence of N tokens twice")  # fmt: skip
    group.add_argument("--repetition-penalty", type=positive_float, default=1.0, metavar="F")
    group.add_argument("--max-length", type=positive_int, metavar="N",
                       help="tokens of an answer (default: the recipe's)")  # fmt: skip
    group.add_argument("--seed", type=seed_number, default=0, metavar="S", help="of samples")


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """Adds what chooses the devices."""
    group = parser.add_argument_group("devices")
    group.add_argument("--towers", type=positive_int, metavar="N", help="number of towers")
    group.add_argument("--gpus", type=int_list, metavar="LIST", help="such as 0,2: only these")
    group.add_argument("--virtual", action="store_true", help="split one GPU into the towers")
    group.add_argument("--gpu-memory", type=positive_float, metavar="GB|FRACTION",
                       help="limit (default: grows with need)")  # fmt: skip
    group.add_argument("--parameters", choices=("auto", "cpu", "tower0"), default="auto",
                       help="where the shared variables live")  # fmt: skip


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Adds how a step runs."""
    group = parser.add_argument_group("engine")
    group.add_argument("--accumulate", type=positive_int, default=1, metavar="K",
                       help="cut each shard into K micro-batches")  # fmt: skip
    group.add_argument("--precision", default="float32",
                       choices=("float32", "float64", "bfloat16", "float16"))  # fmt: skip
    group.add_argument("--xla", action="store_true", help="compile each tower with XLA")
    group.add_argument("--batch-norm", choices=("first", "mean"), default="mean",
                       help="how the towers' moving averages become one")  # fmt: skip
    group.add_argument("--deterministic", action="store_true",
                       help="the same numbers in every run on the same machine")  # fmt: skip
    group.add_argument("--log-placement", action="store_true",
                       help="print on which device each kind of op runs")  # fmt: skip


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--json`."""
    parser.add_argument("--json", action="store_true", help="last line: one JSON object")


def positive_int(text: str) -> int:
    """Returns a whole number of at least 1."""
    value = int(text) if text.strip().lstrip("+-").isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text!r}")
    return value


def seed_number(text: str) -> int:
    """Returns a whole number that NumPy takes as a seed."""
    value = int(text) if text.strip().isdigit() else -1
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(
            f"expected a whole number from 0 to 2**32 - 1, not {text!r}"
        )
    return value


def positive_float(text: str) -> float:
    """Returns a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, not {text!r}")
    return value


def int_list(text: str) -> list[int]:
    """Returns whole numbers from a list such as 0,2."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        message = f"expected whole numbers such as 0,2, not {text!r}"
        raise argparse.ArgumentTypeError(message) from error


def name_list(text: str) -> list[str]:
    """Returns names from a list such as plain,fit."""
    return [part.strip() for part in text.split(",") if part.strip()]


if __name__ == "__main__":
    sys.exit(main())
