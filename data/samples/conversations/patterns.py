"""The patterns of the embedded dialogues, read from one JSON file for each language.

A file holds:

- openings: sentences that may stand before the first turn.
- words: named lists; words are separated by blanks.
- tables: named tables; `gaps` names the columns, cells are separated by commas and rows by
  semicolons or line ends.
- ways: named alternatives, divided by bars.
- shared_phrasings: lists of phrasings that several kinds use. In Chinese a blank stands around a
  gap and vanishes; two blanks stand for one. The first turn of a phrasing may have alternatives, as
  in `(hi|hello) there(.|)`, or those of `ways`, as in `(@ask)`; it stands for at most `WORDINGS` of
  its wordings, spread over all.
- kinds: for each kind its name, its phrasings (or the names of shared ones), and the rule of
  `contents.py` that makes its contents, with the rule's arguments. `answers` are more phrasings:
  for each answer the questions that have it. `then` is one of several last turns that follow each
  phrasing. The other values are those of `Kind`.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from towers.data.samples.conversations.contents import RULES, Content, made_up_word

LANGUAGES = ("en", "zh")
WORDINGS = 48
ALTERNATIVES = re.compile(r"\(([^()]*\|[^()]*|@[^()]*)\)")
OPTIONS = ("held_out", "variants", "uses", "alone", "telling")


class Kind(NamedTuple):
    """A kind of dialogue: several ways to ask for the same thing.

    Attributes:
        name: such as `opposites`.
        phrasings: the turns of each phrasing, with gaps in braces.
        contents: the values for the gaps; each content fits every phrasing.
        held_out: whether some combinations of content and phrasing are held out.
        variants: how often each dialogue occurs, at most 3 times: as it is, and without the marks
            at the ends of the questions or after an opening.
        uses: how many dialogues each content has, None for `variants` of each phrasing. With few
            uses every tenth content is held out as a whole.
        alone: whether the answers are right only where the user has told nothing before.
        telling: whether users tell something in it, for which later turns may ask.
    """

    name: str
    phrasings: Sequence[Sequence[str]]
    contents: Sequence[Content]
    held_out: bool = True
    variants: int = 2
    uses: int | None = None
    alone: bool = False
    telling: bool = False


class Patterns(NamedTuple):
    """The patterns of a language.

    Attributes:
        openings: sentences that may stand before the first turn; one is empty.
        words: named lists of words.
        kinds: in the order in which their dialogues are generated.
    """

    openings: Sequence[str]
    words: Mapping[str, Sequence[str]]
    kinds: Sequence[Kind]


@functools.cache
def read_patterns(language: str) -> Patterns:
    """Returns the patterns of `en` or `zh`; ValueError for another language."""
    if language not in LANGUAGES:
        raise ValueError(
            f"There are embedded dialogues in {', '.join(LANGUAGES)}. Received {language!r}."
        )
    text = (Path(__file__).parent / f"{language}.json").read_text(encoding="utf-8")
    content = json.loads(text)
    words = {name: " ".join(lines).split() for name, lines in content["words"].items()}
    tables = {name: _table(**table) for name, table in content["tables"].items()}
    ways = content["ways"]
    shared = {name: _wordings(items, ways) for name, items in content["shared_phrasings"].items()}
    kinds = [_kind(kind, words, tables, shared, ways) for kind in content["kinds"]]
    return Patterns(content["openings"], words, kinds)


def _table(gaps: str, rows: Sequence[str]) -> list[Content]:
    """Returns the rows of a table; each string holds some of them."""
    cells = [row.split(", ") for line in rows for row in line.split("; ")]
    return [dict(zip(gaps.split(), row, strict=True)) for row in cells]


def _kind(
    kind: dict[str, Any],
    words: Mapping[str, Sequence[str]],
    tables: Mapping[str, Sequence[Content]],
    shared: Mapping[str, list[list[str]]],
    ways: Mapping[str, str],
) -> Kind:
    """Returns a kind with its contents made and its shared phrasings filled in."""
    arguments = dict(kind["contents"])
    rule = RULES[arguments.pop("rule")]
    for name, values in (("words", words), ("table", tables)):
        if name in arguments:
            arguments[name] = values[arguments[name]]
    if "forms" in arguments:
        arguments["forms"] = [[words[part] for part in form.split()] for form in arguments["forms"]]
    answers = kind.get("answers", {}).items()
    own = [[question, answer] for answer, questions in answers for question in questions]
    phrasings = _wordings([*_with_shared(kind.get("phrasings", ()), shared), *own], ways)
    if "then" in kind:
        last = _with_shared(kind["then"], shared)
        phrasings = [[*phrasing, *turns] for phrasing in phrasings for turns in last]
    options = {name: kind[name] for name in OPTIONS if name in kind}
    return Kind(kind["name"], phrasings, rule(**arguments), **options)


def _with_shared(
    items: Sequence[str | list[str]], shared: Mapping[str, list[list[str]]]
) -> list[list[str]]:
    """Returns phrasings, those of a shared list in the place of its name."""
    return [
        phrasing
        for item in items
        for phrasing in (shared[item] if isinstance(item, str) else [item])
    ]


def _wordings(phrasings: Sequence[list[str]], ways: Mapping[str, str]) -> list[list[str]]:
    """Returns each phrasing in several wordings of its first turn, if that has alternatives."""
    return [[wording, *turns] for first, *turns in phrasings for wording in wordings(first, ways)]


def wordings(text: str, ways: Mapping[str, str]) -> list[str]:
    """Returns at most `WORDINGS` wordings of a text with alternatives, spread over all of them."""
    parts = [
        ways.get(part.removeprefix("@"), part).split("|") if number % 2 else [part]
        for number, part in enumerate(ALTERNATIVES.split(text))
    ]
    count = min(WORDINGS, math.prod(map(len, parts)))
    return [made_up_word([parts], number) for number in range(count)]
