"""What a trained chatbot says to the first messages of a new user, judged by stated rules.

The messages are in `first_messages_en.json` and `first_messages_zh.json`, by category. Each
category says in `rule` what a sensible answer is; an answer counts if one of the expressions in
`sensible` occurs in it, and none of those in `never`. A message may have expressions of its own.

The patterns of the dialogues were widened after these messages. `fresh_messages_en.json` and
`fresh_messages_zh.json` have 200 others with the same rules (`--fresh`), written by somebody who
had not read the dialogues. No pattern was written for them; keep it so.

    python -m tests.scripts.chatbot.first_messages RUN --language en --transcript FILE
"""

from __future__ import annotations

import argparse
import functools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.scripts.chatbot.made_up import repetitions
from towers.data.samples.conversations import conversations, read_patterns

Ask = Callable[[Sequence[Sequence[str]]], list[str]]


class Message(NamedTuple):
    """A first message, or the messages of a short talk.

    Attributes:
        category: such as `greetings`.
        rule: what is sensible, in words.
        say: the messages in turn; the answer to the last one is judged.
        seen: whether training dialogues have all that is said, but for capitals and marks.
        sensible: expressions of which one must occur in the answer.
        never: expressions of which none may occur.
    """

    category: str
    rule: str
    say: tuple[str, ...]
    seen: bool
    sensible: tuple[str, ...]
    never: tuple[str, ...] = ()


class Talk(NamedTuple):
    """A message with all answers, and whether the last one is sensible."""

    message: Message
    answers: tuple[str, ...]
    is_sensible: bool


def main(arguments: Sequence[str] | None = None) -> None:
    """Asks a run all messages, prints the shares and writes the transcript."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", help="a run of the recipe chatbot")
    parser.add_argument("--language", choices=("en", "zh"), default="en")
    parser.add_argument(
        "--fresh", action="store_true", help="the 200 for which no pattern was written"
    )
    parser.add_argument("--transcript", type=Path, help="a Markdown file to write")
    given = parser.parse_args(arguments)
    language = given.language
    known = [*read_messages(language), *made_up_messages(language)]
    messages = read_fresh_messages(language) if given.fresh else known
    answer, context = open_run(given.run)
    talks = hold_talks(messages, answer, context)
    print(table(talks))
    if given.transcript:
        given.transcript.write_text(transcript(talks), encoding="utf-8")


def read_messages(language: str) -> list[Message]:
    """Returns the 300 first messages of `en` or `zh`."""
    return [
        message_of(category, one, language)
        for category in read_json(f"first_messages_{language}.json")
        for one in category["messages"]
    ]


def read_fresh_messages(language: str) -> list[Message]:
    """Returns the 200 fresh messages of `en` or `zh`."""
    fresh = read_json(f"fresh_messages_{language}.json")
    categories = {one["name"]: one for one in read_json(f"first_messages_{language}.json")}
    every = [(categories[name], one) for name, own in fresh.items() for one in own]
    return [message_of(category, one, language) for category, one in every]


def message_of(category: dict[str, Any], one: dict[str, Any], language: str) -> Message:
    """Returns a message of a category, whose rule and expressions it has unless it has its own."""
    return Message(
        category["name"],
        category["rule"],
        tuple(one["say"]),
        {words(turn) for turn in one["say"]} <= trained_questions(language),
        tuple(one.get("sensible", category.get("sensible", ()))),
        tuple(category.get("never", ())),
    )


@functools.cache
def trained_questions(language: str) -> frozenset[str]:
    """Returns what the training dialogues ask, with and without openings."""
    openings = [words(opening) for opening in read_patterns(language).openings if opening]
    asked = {words(turn) for turns in conversations(language, "train") for turn in turns[::2]}
    bare = {turn.removeprefix(one).lstrip(".。") for turn in asked for one in openings}
    return frozenset(asked | bare)


def words(text: str) -> str:
    """Returns what is left of a text without capitals, blanks and punctuation at its end."""
    return "".join(text.lower().split()).rstrip(".?!。？！…")  # noqa: RUF001 - Chinese marks.


def read_json(name: str) -> Any:
    """Returns the content of a file beside this one."""
    return json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def made_up_messages(language: str) -> list[Message]:
    """Returns talks that ask for names and numbers which no training dialogue holds."""
    rule = "The made-up word occurs in the last answer."
    return [
        Message(f"repeating {kind}", rule, say, False, (re.escape(word.lower()),))
        for kind, word, say in repetitions(language)
    ]


def open_run(run: str) -> tuple[Ask, int]:
    """Returns the function that answers dialogues, and how many earlier turns it reads."""
    from towers.ground.quiet import import_tensorflow_quietly

    import_tensorflow_quietly()
    from towers.scripts.chatbot.opening import open_answerer
    from towers.scripts.training.options import DecodingOptions, ModelOptions
    from towers.scripts.training.saved_run import open_model

    opened = open_model(ModelOptions(run))
    answerer = open_answerer(opened, DecodingOptions())

    def answer(dialogues: Sequence[Sequence[str]]) -> list[str]:
        return [found[0].text for found in answerer.answer(dialogues)]

    return answer, opened.recipe.fields.context


def hold_talks(messages: Sequence[Message], answer: Ask, context: int) -> list[Talk]:
    """Returns every message with its answers; the answers belong to the next question."""
    said: list[list[str]] = [[] for _ in messages]
    for turn in range(max(len(message.say) for message in messages)):
        asked = [number for number, message in enumerate(messages) if turn < len(message.say)]
        for number in asked:
            said[number].append(messages[number].say[turn])
        answers = answer([said[number][-1 - context :] for number in asked])
        for number, text in zip(asked, answers, strict=True):
            said[number].append(text)
    return [
        Talk(message, tuple(turns[1::2]), is_sensible(message, turns[-1]))
        for message, turns in zip(messages, said, strict=True)
    ]


def is_sensible(message: Message, answer: str) -> bool:
    """Returns whether the rule of a message holds for an answer."""

    def occurs(expressions: Sequence[str]) -> bool:
        return any(re.search(one, answer, re.IGNORECASE) for one in expressions)

    return occurs(message.sensible) and not occurs(message.never)


def table(talks: Sequence[Talk]) -> str:
    """Returns the share of sensible answers in each category and over all, as Markdown."""
    first = [talk for talk in talks if not talk.message.category.startswith("repeating")]
    lines = ["| Category | Messages | Sensible | Of unseen ones |", "|---|---|---|---|"]
    for name in dict.fromkeys(talk.message.category for talk in talks):
        lines.append(_row(name, [talk for talk in talks if talk.message.category == name]))
    return "\n".join([*lines, _row("all first messages", first)])


def _row(name: str, talks: Sequence[Talk]) -> str:
    unseen = [talk for talk in talks if not talk.message.seen]
    return f"| {name} | {len(talks)} | {_share(talks)} | {_share(unseen)} |"


def _share(talks: Sequence[Talk]) -> str:
    if not talks:
        return "-"
    return f"{sum(talk.is_sensible for talk in talks) / len(talks):.0%}"


def transcript(talks: Sequence[Talk]) -> str:
    """Returns the shares and every talk, sensible or not, as Markdown."""
    lines = ["# First messages", "", table(talks), ""]
    for name in dict.fromkeys(talk.message.category for talk in talks):
        of_category = [talk for talk in talks if talk.message.category == name]
        lines += [f"## {name}", "", of_category[0].message.rule, ""]
        lines += ["| Said and answered | Seen in training | Sensible |", "|---|---|---|"]
        lines += [_talk_row(talk) for talk in of_category] + [""]
    return "\n".join(lines)


def _talk_row(talk: Talk) -> str:
    turns = [
        f"{_cell(question)} → *{_cell(answer)}*"
        for question, answer in zip(talk.message.say, talk.answers, strict=True)
    ]
    seen, sensible = ("yes" if one else "no" for one in (talk.message.seen, talk.is_sensible))
    return f"| {'<br>'.join(turns)} | {seen} | {sensible} |"


def _cell(text: str) -> str:
    """Returns a text that shows as it is in a cell of a table."""
    return re.sub(r"([\\|*_<>`\[\]])", r"\\\1", text)


if __name__ == "__main__":
    main()
