"""`towers generate`: continues a prompt with a trained language model.

towers generate runs/stories --prompt "the kite" --length 30
towers generate runs/stories --num-samples 3 --top-p 0.9
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.options.setting import Count, Temperature, Tokens, arguments_for
from towers.scripts.shown import show
from towers.scripts.training.options import DeviceOptions, ModelOptions, SamplingOptions
from towers.scripts.wrong_input import text_of_argument, wrong_input

if TYPE_CHECKING:
    from towers.data.text import LineCodec
    from towers.models.decoding import Decoding
    from towers.scripts.training.saved_run import OpenModel

USUAL = {
    *("run_dir", "checkpoint", "prompt", "length", "num_samples"),
    *("temperature", "top_k", "top_p", "seed"),
}


@dataclasses.dataclass(frozen=True)
class GeneratedSamplingOptions(SamplingOptions):
    """The sampling of a text.

    Attributes:
        temperature: below 1 favours likely words more, above 1 less.
    """

    temperature: Temperature = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateOptions(ModelOptions):
    """The text to generate.

    Attributes:
        prompt: words separated by spaces.
        length: number of words after the prompt.
        num_samples: number of texts to write.
    """

    sampling: GeneratedSamplingOptions
    devices: DeviceOptions
    prompt: Annotated[str, "TEXT"] = ""
    length: Tokens = 50
    num_samples: Annotated[Count, "M"] = 1


def run(options: GenerateOptions) -> int:
    """Prints the prompt and its continuation, once for each sample."""
    import_tensorflow_quietly()
    from towers.models.decoding import Decoding
    from towers.scripts.training.saved_run import open_model

    sampling = options.sampling
    with wrong_input():
        text = text_of_argument(options.prompt)
        arguments = arguments_for(
            Decoding, sampling, n_best=options.num_samples, max_length=options.length
        )
        decoding = Decoding(**arguments)
        opened = open_model(options, options.devices, command="generate")
    prompt = opened.text.encode(text)
    if unknown := prompt.count(opened.text.vocabulary.unknown):
        warn_of_unknown(unknown, len(prompt))
    samples = generate(opened, decoding, prompt, sampling.seed)
    for number, ids in enumerate(samples, start=1):
        if len(samples) > 1:
            show(f"[{number}]")
        show(continued(opened.text, text, prompt, ids))
    return 0


def generate(
    opened: OpenModel, decoding: Decoding, prompt: Sequence[int], seed: int
) -> list[list[int]]:
    """Returns the ids of each sample of a text that begins with a prompt, without the prompt.

    A sample ends before the end of its document, if it comes to that.
    """
    import tensorflow as tf

    from towers.models.decoding import continuation

    text = opened.text
    continue_prompt = continuation(opened.model, decoding, text.unspoken, text.stop)
    read = tf.constant([text.begin, *prompt], tf.int32)
    samples = continue_prompt(read, tf.constant([seed, 0], tf.int64)).ids.numpy()[0].tolist()
    return [ids[: ids.index(text.stop)] if text.stop in ids else ids for ids in samples]


def continued(codec: LineCodec, typed: str, prompt: Sequence[int], ids: Sequence[int]) -> str:
    """Returns a prompt as it was typed, and what further ids add to its text.

    A quote among them may move blanks in the prompt's text, which therefore do not count.
    """
    before, whole = codec.decode(prompt), codec.decode([*prompt, *ids])
    letters, blanks = "".join(before.split()), before[len(before.rstrip()) :]
    read = re.match(r"\s*?".join(["", *map(re.escape, letters)]) + re.escape(blanks), whole)
    added = whole[read.end() if read else len(before) :]
    return typed + (added.removeprefix(" ") if typed[-1:].isspace() and not blanks else added)


def warn_of_unknown(unknown: int, count: int) -> None:
    """Warns of words or characters of a prompt that the model does not know."""
    warnings.warn(
        f"{unknown} of the {count} tokens of the prompt are unknown to the model, which was not "
        "trained on these words or characters. Use others, or train on a text that has them.",
        RuntimeWarning,
        stacklevel=2,
    )
