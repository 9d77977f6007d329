"""YAML, such as ChatterBot's corpora: lists of turns under `conversations`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from towers.data.reading.chats import dialogues_of
from towers.data.reading.dialogue_file import Dialogue, DialogueFile, Line
from towers.ground.extras import import_extra


def fits(file: DialogueFile) -> bool:
    """Returns whether the name of the file is one of YAML."""
    return file.path.suffix.lower() in (".yml", ".yaml")


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields the dialogues of one document; every value is a text, also `yes`.

    Raises:
        ValueError: the file is no YAML, or the library is not installed.
    """
    yaml = import_extra("yaml", "yaml", f"{file.path} is YAML")
    text = "\n".join(line.text for line in file.lines())
    try:
        record: Any = yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{file.path}: expected YAML, found {reason}.") from error
    yield from dialogues_of([(Line(1, "", False), record)], file, "documents without dialogues")
