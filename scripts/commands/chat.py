"""`towers chat`: a conversation with a trained chatbot.

towers chat runs/chatbot
towers chat runs/chatbot --ask "How are you?" --nbest 3
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Annotated

from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.options.setting import Bound, Flag, is_blank
from towers.scripts.shown import show
from towers.scripts.training.options import (
    USUAL_DECODING,
    DecodingOptions,
    DeviceOptions,
    ModelOptions,
)
from towers.scripts.wrong_input import WrongInputError, text_of_argument, wrong_input

QUESTION = Bound("a question", lambda text: not is_blank(text))
USUAL = {"run_dir", "checkpoint", "ask", "stdin", *USUAL_DECODING}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChatOptions(ModelOptions):
    """The model, and where the questions come from; by default you type them.

    Attributes:
        ask: ask these questions in turn, instead of yours (default: none).
        stdin: print one answer per input line; TABs separate turns.
    """

    decoding: DecodingOptions
    devices: DeviceOptions
    ask: Annotated[tuple[str, ...], QUESTION, "QUESTION", Flag(nargs="+")] = ()
    stdin: bool = False


def run(options: ChatOptions) -> int:
    """Answers typed questions, those of --ask, or each line of the standard input."""
    if options.ask and options.stdin:
        raise WrongInputError("--ask and --stdin contradict each other: give one of them.")
    import_tensorflow_quietly()
    from towers.scripts.chatbot import conversation
    from towers.scripts.chatbot.opening import open_answerer
    from towers.scripts.training.saved_run import open_model

    decoding = options.decoding
    with wrong_input():
        questions = [text_of_argument(question) for question in options.ask]
        opened = open_model(options, options.devices)
        make_answerer = functools.cache(functools.partial(open_answerer, opened))
        answerer = make_answerer(decoding)
    talk = conversation.Conversation(opened, decoding, make_answerer)
    if options.stdin:
        conversation.answer_lines(opened, answerer, decoding.seed)
    elif options.ask:
        show(talk.introduction)
        talk.hold(conversation.asked_lines(questions), obeys_words=False)
    else:
        show(f"{talk.introduction}\n{conversation.WELCOME}")
        with conversation.line_editing(conversation.history_file()):
            talk.hold(conversation.typed_lines())
    return 0
