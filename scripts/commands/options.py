"""Options that several commands share, and options as the dataclasses that machinery takes."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from typing import Any, TypeVar

from towers.scripts.commands.option_types import (
    Switch,
    int_list,
    number_of_parts,
    number_of_tokens,
    path_name,
    positive_float,
    positive_int,
    seed_number,
)
from towers.scripts.training.catalogue import find_recipe, load_recipe
from towers.scripts.training.recipe import Recipe

# The fields of recipes that have a flag of their own on the command line.
FLAGS = ("batch_size", "epochs", "language", "kind", "encoding", "context")
CHECKPOINTS = ("best", "latest")
Options = TypeVar("Options")


def read_options(kind: type[Options], given: argparse.Namespace) -> Options:
    """Returns a dataclass of options, with its defaults for options that were not given.

    Args:
        kind: the dataclass. Fields that are dataclasses themselves are read in the same way.
        given: the parsed command line.
    """
    types = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, own in types.items():
        if dataclasses.is_dataclass(own):
            values[name] = read_options(typing.cast(type, own), given)
        elif hasattr(given, name):
            value = getattr(given, name)
            values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def check_contradictions(given: argparse.Namespace) -> None:
    """Raises ValueError if options say one thing twice: steps and epochs, or a field by two.

    Of several values for one option the last counts, as everywhere.
    """
    texts = [one for one in getattr(given, "overrides", ()) if "=" in one]
    fields = {one.partition("=")[0].strip().replace("-", "_"): f"--set {one}" for one in texts}
    flags = {
        name: f"--{name.replace('_', '-')} {getattr(given, name)}"
        for name in FLAGS
        if hasattr(given, name)
    }
    both = [(flags[name], fields[name]) for name in flags if name in fields]
    if hasattr(given, "steps") and "epochs" in {**fields, **flags}:
        both.append((f"--steps {given.steps}", {**fields, **flags}["epochs"]))
    for one, other in both:
        raise ValueError(f"{one} and {other} contradict each other: give one of them.")


def chosen_recipe(given: argparse.Namespace) -> Recipe:
    """Returns the recipe that a command line names, its fields set by the flags and `--set`."""
    flags = {name: getattr(given, name) for name in FLAGS if hasattr(given, name)}
    overrides = list(getattr(given, "overrides", ()))
    if getattr(given, "xla", False) and hasattr(find_recipe(given.recipe).fields, "fixed_shapes"):
        overrides.insert(0, "fixed_shapes=true")  # XLA compiles a step for each shape.
    return load_recipe(given.recipe, overrides, **flags)


def add_recipe_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that change a recipe's fields or data."""
    add_data_options(parser)
    parser.add_argument("--seed", type=seed_number, metavar="S", help="default: 0")
    parser.add_argument("--batch-size", type=positive_int, metavar="B",
                        help="examples in one update, over all towers (default: the "
                             "recipe's)")  # fmt: skip
    add_text_options(parser)


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the data's place, and for any field."""
    parser.add_argument("--data", type=path_name, metavar="PATH", nargs="+",
                        help="the data's folder, or files (default: datasets/...)")  # fmt: skip
    add_set_option(parser, "any other field of the recipe (default: see `towers recipes RECIPE`)")


def add_set_option(parser: argparse.ArgumentParser, text: str) -> None:
    """Adds `--set`."""
    parser.add_argument("--set", action="append", metavar="FIELD=VALUE", dest="overrides",
                        help=text)  # fmt: skip


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """Adds flags for the fields of recipes with text."""
    group = parser.add_argument_group("text", "fields of the recipes that have text")
    group.add_argument("--language", metavar="zh|en", help="default: the recipe's")
    group.add_argument("--kind", metavar="KIND",
                       help="format of the files (default: recognised)")  # fmt: skip
    group.add_argument("--encoding", metavar="CODEC", help="such as gb18030 (default: utf-8)")
    group.add_argument("--context", type=int, metavar="K",
                       help="earlier turns that belong to a question (default: the "
                            "recipe's)")  # fmt: skip


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Adds the run directory and the choice of the checkpoint."""
    parser.add_argument("run_dir", type=path_name, metavar="RUN_DIR")
    parser.add_argument("--checkpoint", choices=CHECKPOINTS, help="default: best")


def add_decoding_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for decoding answers."""
    group = parser.add_argument_group("decoding (default: greedy)")
    group.add_argument("--beam", type=number_of_parts, metavar="N",
                       help="beam search with N beams (default: 1)")  # fmt: skip
    group.add_argument("--nbest", type=number_of_parts, metavar="N",
                       help="N answers to each question, with scores (default: 1)")  # fmt: skip
    group.add_argument("--length-penalty", type=float, metavar="A",
                       help="exponent of Wu et al. 2016, for beam search (default: 1)")  # fmt: skip
    add_sampling_options(group)
    group.add_argument("--no-repeat-ngram", type=positive_int, metavar="N",
                       help="never repeat a sequence of N tokens (default: no such "
                            "rule)")  # fmt: skip
    group.add_argument("--repetition-penalty", type=positive_float, metavar="F",
                       help="make tokens that were said F times less likely (default: "
                            "1)")  # fmt: skip
    group.add_argument("--max-length", type=number_of_tokens, metavar="N",
                       help="at most N tokens in an answer (default: the recipe's)")  # fmt: skip


def add_reranking_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for reranking answers by mutual information."""
    group = parser.add_argument_group("reranking (Li et al. 2016)")
    group.add_argument("--mmi", metavar="RUN_DIR",
                       help="rerank by this run, trained with --set direction=backward or "
                            "answers (default: none)")  # fmt: skip
    group.add_argument("--candidates", type=number_of_parts, metavar="N",
                       help="choose among N samples; a beam search gives its beams (default: "
                            "20)")  # fmt: skip
    group.add_argument("--mmi-weight", type=positive_float, metavar="W",
                       help="weight of its log probabilities (default: 0.5)")  # fmt: skip
    group.add_argument("--length-reward", type=float, metavar="R",
                       help="added for each token of an answer (default: 2)")  # fmt: skip


def add_sampling_options(group: argparse._ActionsContainer) -> None:
    """Adds the options for sampling tokens."""
    group.add_argument("--temperature", type=positive_float, metavar="T",
                       help="sample; below 1 prefers likely words more, above 1 less "
                            "(default: 1 with --top-k or --top-p)")  # fmt: skip
    group.add_argument("--top-k", type=positive_int, metavar="K",
                       help="sample from the K most likely words (default: all)")  # fmt: skip
    group.add_argument("--top-p", type=positive_float, metavar="P",
                       help="nucleus sampling: the smallest set of words with "
                            "probability P (default: 1)")  # fmt: skip
    group.add_argument("--seed", type=seed_number, metavar="S", help="of samples (default: 0)")


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """Adds the choice of the devices."""
    group = parser.add_argument_group("devices")
    group.add_argument(
        "--towers",
        type=number_of_parts,
        metavar="N",
        help="how many (default: one per GPU, or one on the CPU)",
    )
    group.add_argument("--cpu-towers", type=number_of_parts, metavar="N",
                       help="how many where there is no GPU, without --towers (default: "
                            "1)")  # fmt: skip
    group.add_argument(
        "--gpus", type=int_list, metavar="LIST", help="only these, such as 0,2 (default: all)"
    )
    group.add_argument("--virtual", action=Switch, help="split one GPU into the towers")
    group.add_argument("--gpu-memory", type=positive_float, metavar="GB|FRACTION",
                       help="limit (default: grows with need)")  # fmt: skip
    group.add_argument("--parameters", choices=("auto", "cpu", "tower0", "replicated"),
                       help="where the shared variables live; replicated: a copy on each tower; "
                            "auto: on several GPUs the faster of cpu and replicated "
                            "(default: auto)")  # fmt: skip
    group.add_argument("--tf32", action=argparse.BooleanOptionalAction,
                       help="whether GPUs may round the factors of float32 products to 10 bits "
                            "of mantissa (default: where they can, they do)")  # fmt: skip


def add_sharing_option(parser: argparse.ArgumentParser) -> None:
    """Adds the number of devices that share the layers of a tower."""
    parser.add_argument("--gpus-per-tower", type=number_of_parts, metavar="N",
                        help="share each tower's layers between N GPUs, for models that one is "
                             "too small for; without a GPU between virtual CPUs (default: "
                             "1)")  # fmt: skip


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for how a step runs."""
    group = parser.add_argument_group("engine")
    group.add_argument("--updates", choices=("sync", "async"),
                       help="async: each tower takes batches and updates by itself "
                            "(default: sync)")  # fmt: skip
    group.add_argument("--exchange", choices=("auto", "packs", "nccl"),
                       help="how copies of the variables sum their gradients: by packs between "
                            "the towers, or by NCCL (on CPUs, a ring); auto: nccl if it was the "
                            "fastest on four or more GPUs (default: auto)")  # fmt: skip
    group.add_argument("--accumulate", type=number_of_parts, metavar="K",
                       help="cut each shard into K micro-batches (default: 1)")  # fmt: skip
    group.add_argument("--precision", choices=("float32", "float64", "bfloat16", "float16"),
                       help="default: float32")  # fmt: skip
    group.add_argument("--xla", action=Switch, help="compile each tower with XLA")
    group.add_argument("--batch-norm", choices=("first", "mean"),
                       help="how the towers' moving averages become one "
                            "(default: mean)")  # fmt: skip
    group.add_argument("--deterministic", action=Switch,
                       help="the same numbers in every run on the same machine, and for every "
                            "number of towers with the same number of micro-batches in all, a "
                            "power of two per tower")  # fmt: skip
    group.add_argument("--log-placement", action=Switch,
                       help="print on which device each kind of op runs")  # fmt: skip


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--json`."""
    parser.add_argument("--json", action="store_true", default=False,
                        help="last line: one JSON object")  # fmt: skip
