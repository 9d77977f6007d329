"""Prints one line of answers per input line; TABs separate earlier turns, and answers.

It needs TensorFlow and, for Chinese, jieba; otherwise only the files beside it.
"""

import json
import sys
from pathlib import Path

import tensorflow as tf

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Loads the model, then answers until the input ends."""
    sys.path.insert(0, str(HERE))
    from text.codec import TextCodec  # The folder beside this file.

    settings = json.loads((HERE / "settings.json").read_text(encoding="utf-8"))
    codec = TextCodec.load(HERE / "vocabulary")
    model = tf.saved_model.load(str(HERE / "model"))  # Kept: it owns the variables.
    for number, line in enumerate(sys.stdin):
        turns = [turn for turn in line.rstrip("\r\n").split("\t") if turn.strip()]
        if not turns:
            print(flush=True)
            continue
        turns = turns[-1 - settings["context"] :]
        question = codec.encode_question(turns, settings["max_question_length"])
        ids = question.ids or [settings["unknown_id"]]  # Without a word it gets an answer too.
        decoded = model.answer(tf.constant([ids], tf.int32), tf.constant([0, number], tf.int64))
        texts = [
            codec.decode(
                [int(one) for one in row if one != settings["padding_id"]], question.copied
            )
            for row in decoded.ids[0].numpy()
        ]
        print("\t".join(texts), flush=True)


if __name__ == "__main__":
    main()
