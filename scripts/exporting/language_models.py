"""Language models: a signature that continues a text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from towers.models.decoding import Decoding
from towers.scripts.exporting.folders import write_model, write_settings
from towers.scripts.training.generation import build_continuation
from towers.scripts.training.options import SearchOptions
from towers.scripts.training.saved_run import OpenModel

LENGTH = 50  # Words, as `towers generate` writes by default.


def language_model_writer(opened: OpenModel, options: SearchOptions) -> Callable[[Path], str]:
    """Returns `write(folder)`, which exports a language model and returns a line about it.

    Raises:
        ValueError: the options are impossible.
    """
    if options.beam > 1:
        raise ValueError("A language model samples: leave out --beam.")
    if options.length_penalty != SearchOptions.length_penalty:
        raise ValueError("--length-penalty is of a beam search, and a language model samples.")
    decoding = Decoding(
        n_best=options.nbest,
        temperature=options.temperature or 1.0,
        top_k=options.top_k,
        top_p=options.top_p,
        no_repeat_ngram=options.no_repeat_ngram,
        repetition_penalty=options.repetition_penalty,
        max_length=options.max_length or LENGTH,
    )
    return functools.partial(write_language_model, opened, decoding)


def write_language_model(opened: OpenModel, decoding: Decoding, folder: Path) -> str:
    """Writes the model and its vocabulary, a word on each line, whose number from 0 is its id.

    The signature `continue_prompt` takes `read`, int32 [length], the start id and the ids of the
    prompt, and `seed`, int64 [2], and returns ids, scores and lengths of the samples.
    """
    function = build_continuation(opened.model, decoding, opened.special_ids)
    write_model(opened.model, {"continue_prompt": function}, folder)
    opened.text.save(folder / "vocabulary")
    write_settings({"start_id": opened.special_ids.start}, folder)
    return "its signature continue_prompt writes text"
