"""Answers what is typed, or prints a line of answers per argument or line of its input.

TABs separate earlier turns; --help prints this.

It needs TensorFlow and, for Chinese, jieba; otherwise only the files beside it.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Loads the model, then answers until the input ends."""
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
        return
    sys.path.insert(0, str(HERE))  # The folder beside this file has a part of `towers`.
    from towers.data.text.codec import TextCodec
    from towers.ground.quiet import import_tensorflow_quietly

    import_tensorflow_quietly()
    import tensorflow as tf

    settings = json.loads((HERE / "settings.json").read_text(encoding="utf-8"))
    codec = TextCodec.load(HERE / "vocabulary")
    model = tf.saved_model.load(str(HERE / "model"))  # Kept: it owns the variables.

    def answer(turns: list[str], number: int) -> list[str]:
        """Returns the answers to the last turn, the best first."""
        turns = turns[-1 - settings["context"] :]
        question = codec.read_question(turns, settings["max_question_length"])
        ids = tf.constant([question.ids], tf.int32)
        decoded = model.answer(ids, tf.constant([0, number], tf.int64))
        rows = [
            [int(one) for one in row if one != settings["padding_id"]]
            for row in decoded.ids[0].numpy()
        ]
        return [codec.decode(row, question.copied) for row in rows]

    if sys.stdin.isatty() and not sys.argv[1:]:
        talk(answer)
    else:
        answer_lines(answer, sys.argv[1:] or sys.stdin)


def talk(answer: Callable[[list[str], int], list[str]]) -> None:
    """Answers typed messages; earlier ones belong to a question."""
    said: list[str] = []
    print("Type a message; Ctrl-D ends, and an empty line forgets the earlier messages.")
    for number in range(sys.maxsize):
        try:
            message = input("you> ").strip()
        except EOFError:
            print()
            return
        if not message:
            said.clear()
            continue
        said.append(message)
        texts = answer(said, number)
        print("\n".join(f"bot> {text}" for text in texts))
        said.append(texts[0])


def answer_lines(answer: Callable[[list[str], int], list[str]], lines: Iterable[str]) -> None:
    """Prints one line of answers per line."""
    for number, line in enumerate(lines):
        turns = [turn for turn in line.rstrip("\r\n").split("\t") if turn.strip()]
        print("\t".join(answer(turns, number)) if turns else "", flush=True)


def prepare_streams() -> None:
    """Makes the input UTF-8 in any locale; what the output's encoding lacks is escaped."""
    sys.stdin.reconfigure(encoding="utf-8", errors="strict")  # type: ignore[union-attr]
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


if __name__ == "__main__":
    try:
        prepare_streams()
        main()
    except KeyboardInterrupt:
        print()
        sys.exit(130)
    except UnicodeDecodeError as error:
        sys.exit(f"answer.py: expected text in UTF-8, found: {error}")
    except BrokenPipeError:  # Its reader has left, such as `head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
