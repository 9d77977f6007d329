"""Options that several commands share."""

from __future__ import annotations

import argparse

from towers.scripts.commands.option_types import int_list, positive_float, positive_int, seed_number


def add_recipe_options(parser: argparse.ArgumentParser) -> None:
    """Adds what changes a recipe's fields or data."""
    add_data_options(parser)
    parser.add_argument("--seed", type=seed_number, default=0, metavar="S")
    parser.add_argument("--batch-size", type=positive_int, metavar="B",
                        help="examples in one update, over all towers")  # fmt: skip
    add_text_options(parser)


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Adds where the data is, and what sets any field."""
    parser.add_argument("--data", metavar="PATH", nargs="+",
                        help="the data's folder, or files (default: datasets/...)")  # fmt: skip
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
    group.add_argument("--cpu-towers", type=positive_int, default=1, metavar="N",
                       help="number of towers where there is no GPU, without --towers")  # fmt: skip
    group.add_argument("--gpus", type=int_list, metavar="LIST", help="such as 0,2: only these")
    group.add_argument("--virtual", action="store_true", help="split one GPU into the towers")
    group.add_argument("--gpu-memory", type=positive_float, metavar="GB|FRACTION",
                       help="limit (default: grows with need)")  # fmt: skip
    group.add_argument("--parameters", default="auto",
                       choices=("auto", "cpu", "tower0", "replicated"),
                       help="where the shared variables live; or a copy on each tower")  # fmt: skip


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Adds how a step runs."""
    group = parser.add_argument_group("engine")
    group.add_argument("--engine", default="towers", choices=("towers", "mirrored", "keras"),
                       help="towers; or, to compare: MirroredStrategy, or fit")  # fmt: skip
    group.add_argument("--updates", choices=("sync", "async"), default="sync",
                       help="async: each tower takes batches and updates by itself")  # fmt: skip
    group.add_argument("--accumulate", type=positive_int, default=1, metavar="K",
                       help="cut each shard into K micro-batches")  # fmt: skip
    group.add_argument("--precision", default="float32",
                       choices=("float32", "float64", "bfloat16", "float16"))  # fmt: skip
    group.add_argument("--xla", action="store_true", help="compile each tower with XLA")
    group.add_argument("--batch-norm", choices=("first", "mean"), default="mean",
                       help="how the towers' moving averages become one")  # fmt: skip
    group.add_argument("--deterministic", action="store_true",
                       help="the same numbers in every run on the same machine; also for the "
                            "same towers times micro-batches, these a power of two")  # fmt: skip
    group.add_argument("--log-placement", action="store_true",
                       help="print on which device each kind of op runs")  # fmt: skip


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--json`."""
    parser.add_argument("--json", action="store_true", help="last line: one JSON object")
