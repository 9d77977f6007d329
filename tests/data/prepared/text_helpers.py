"""What tests of texts share: a text of made-up sentences, prepared by one process."""

import pathlib

import numpy as np

from towers.data.prepared import TextPreparation, prepare_texts
from towers.data.samples import stories
from towers.data.text import TextSettings

PROCESSES = 1  # Others take seconds to start.


def write_stories(path: pathlib.Path, num_lines: int, end: str = "\n") -> list[str]:
    """Writes the first lines of the stories, and returns them."""
    lines = stories.text("train").splitlines()[:num_lines]
    path.write_text("".join(line + end for line in lines), encoding="utf-8")
    return lines


def settings_of(**options) -> TextPreparation:
    """Returns settings for short English texts; those of `TextSettings` go there."""
    names = TextSettings.__dataclass_fields__
    own = {name: options.pop(name) for name in list(options) if name in names}
    options = {"vocabulary_size": 400, "held_out": 0.1, **options}
    return TextPreparation(TextSettings(**{"language": "en", **own}), **options)


def prepare(paths, folder, lines=None, **options):
    """Returns the corpus of some paths; its lines go into a list."""
    paths = paths if isinstance(paths, list) else [paths]
    write = (lambda line: None) if lines is None else lines.append
    return prepare_texts(paths, settings_of(**options), folder, processes=PROCESSES, write=write)


def all_text(corpus) -> list[str]:
    """Returns the lines of all parts of a corpus, decoded."""
    ids = np.concatenate([corpus.part(part) for part in ("train", "validation", "test")])
    return corpus.text.decode(ids.tolist()).split("\n")[:-1]
