"""What the user says about the columns of files, where their names do not tell."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Layout:
    """Names of columns and keys; empty where they are recognised.

    Attributes:
        columns: of question and answer; the last one is the answer.
        sender, text, time: of messages, one a record.
        me: the sender whose messages are the answers.
        answers: a file with the answer to each line of the file of questions.
    """

    columns: tuple[str, ...] = ()
    sender: str = ""
    text: str = ""
    time: str = ""
    me: str = ""
    answers: str = ""

    def __post_init__(self) -> None:
        names = [name.strip().lower() for name in self.columns]
        if len(names) == 1:
            raise ValueError(
                f"columns must name those of question and answer. Received {names[0]!r} alone."
            )
        if len(set(names)) < len(names):
            raise ValueError(
                f"columns must differ from each other. Received {','.join(self.columns)}."
            )
        if bool(self.sender) != bool(self.text):
            raise ValueError(
                "sender and text name two columns of messages. Received one of them: give both."
            )
