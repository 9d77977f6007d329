"""`towers generate`: text that continues a prompt, by a trained language model."""

from __future__ import annotations

import argparse
import dataclasses
import warnings

from towers.scripts.commands.option_types import number_of_tokens, positive_int
from towers.scripts.commands.options import (
    add_device_options,
    add_model_options,
    add_sampling_options,
    read_options,
)
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.shown import show
from towers.scripts.training.options import DeviceOptions, ModelOptions
from towers.scripts.wrong_input import wrong_input


@dataclasses.dataclass(frozen=True)
class GenerateOptions:
    """The text to generate.

    Attributes:
        prompt: its first words, separated by spaces.
        length: words after the prompt.
        num_samples: how many texts.
        temperature, top_k, top_p: of the sampling.
        seed: of the samples.
    """

    prompt: str = ""
    length: int = 50
    num_samples: int = 1
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_model_options(parser)
    parser.add_argument(
        "--prompt", metavar="TEXT", help="words separated by spaces (default: none)"
    )
    parser.add_argument("--length", type=number_of_tokens, metavar="N",
                        help="words after the prompt (default: 50)")  # fmt: skip
    parser.add_argument("--num-samples", type=positive_int, metavar="M",
                        help="texts to write (default: 1)")  # fmt: skip
    add_sampling_options(parser.add_argument_group("sampling (default: at temperature 1)"))
    add_device_options(parser)


def run(given: argparse.Namespace) -> int:
    """Prints the prompt and its continuation, once for each sample."""
    import_tensorflow_quietly()
    from towers.models.decoding import Decoding
    from towers.scripts.training.generation import generate
    from towers.scripts.training.saved_run import open_model

    options = read_options(GenerateOptions, given)
    model, devices = read_options(ModelOptions, given), read_options(DeviceOptions, given)
    with wrong_input():
        decoding = Decoding(
            n_best=options.num_samples,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            max_length=options.length,
        )
        opened = open_model(model, devices, command="generate")
    prompt = opened.text.encode(options.prompt)
    if unknown := prompt.count(opened.special_ids.unknown):
        warn_of_unknown(unknown, len(prompt))
    samples = generate(
        opened.model, decoding, prompt, special_ids=opened.special_ids, seed=options.seed
    )
    for number, ids in enumerate(samples, start=1):
        if len(samples) > 1:
            show(f"[{number}]")
        show(opened.text.decode([*prompt, *ids]))
    return 0


def warn_of_unknown(unknown: int, count: int) -> None:
    """Warns of words or characters of a prompt that the model does not know."""
    warnings.warn(
        f"{unknown} of the {count} tokens of the prompt are unknown to the model: it has not seen "
        "these words or characters. Use others, or train on a text that has them.",
        RuntimeWarning,
        stacklevel=2,
    )
