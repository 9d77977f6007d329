"""`towers chat`: a conversation with a trained chatbot."""

from __future__ import annotations

import argparse
import dataclasses
import functools

from towers.scripts.commands.options import (
    add_decoding_options,
    add_device_options,
    add_model_options,
    add_reranking_options,
    read_options,
)
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.shown import show
from towers.scripts.training.options import DeviceOptions, ModelOptions
from towers.scripts.wrong_input import wrong_input


@dataclasses.dataclass(frozen=True)
class ChatOptions:
    """The source of the questions; by default they are typed.

    Attributes:
        ask: questions, or nothing.
        stdin: whether they are the lines of the standard input.
    """

    ask: tuple[str, ...] = ()
    stdin: bool = False


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_model_options(parser)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--ask", nargs="+", metavar="QUESTION",
                       help="ask these questions in turn instead of typed ones "
                            "(default: none)")  # fmt: skip
    group.add_argument("--stdin", action="store_true",
                       help="print one answer per input line; TABs separate turns")  # fmt: skip
    add_decoding_options(parser)
    add_reranking_options(parser)
    add_device_options(parser)


def run(given: argparse.Namespace) -> int:
    """Answers typed questions, those of --ask, or each line of the standard input."""
    import_tensorflow_quietly()
    from towers.scripts.chatbot import conversation
    from towers.scripts.chatbot.opening import open_answerer
    from towers.scripts.training.options import DecodingOptions
    from towers.scripts.training.saved_run import open_model

    options, decoding = read_options(ChatOptions, given), read_options(DecodingOptions, given)
    with wrong_input():
        opened = open_model(read_options(ModelOptions, given), read_options(DeviceOptions, given))
        make_answerer = functools.cache(functools.partial(open_answerer, opened))
        answerer = make_answerer(decoding)
    talk = conversation.Conversation(opened, decoding, make_answerer)
    with wrong_input(UnicodeDecodeError):  # Input in another encoding.
        if options.stdin:
            conversation.answer_lines(answerer, opened.recipe.fields.context, decoding.seed)
        elif options.ask:
            show(talk.introduction)
            talk.hold(conversation.asked_lines(options.ask))
        else:
            show(f"{talk.introduction}\n{conversation.WELCOME}")
            with conversation.line_editing(opened.directory.path / "chat_history"):
                talk.hold(conversation.typed_lines())
    return 0
