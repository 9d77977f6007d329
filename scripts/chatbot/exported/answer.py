"""Answers each line of the standard input by a line; TAB parts earlier turns of a dialogue.

It needs TensorFlow and, for Chinese, jieba; nothing else but the files beside it.
"""

import json
import sys
from pathlib import Path

import tensorflow as tf

HERE = Path(__file__).resolve().parent
UNKNOWN = 3  # What stands for a question without a known word.


def main() -> None:
    """Loads the model, then answers until the input ends."""
    sys.path.insert(0, str(HERE))
    from text.codec import TextCodec  # Stands beside this file.

    settings = json.loads((HERE / "settings.json").read_text(encoding="utf-8"))
    codec = TextCodec.load(HERE / "vocabulary")
    model = tf.saved_model.load(str(HERE / "model"))  # Kept: it owns the variables.
    for number, line in enumerate(sys.stdin):
        turns = [turn for turn in line.rstrip("\r\n").split("\t") if turn.strip()]
        if not turns:
            print(flush=True)
            continue
        turns = turns[-1 - settings["context"] :]
        ids = codec.encode_question(turns)[-settings["max_question_length"] :] or [UNKNOWN]
        decoded = model.answer(tf.constant([ids], tf.int32), tf.constant([0, number], tf.int64))
        texts = [codec.decode([int(one) for one in row if one]) for row in decoded.ids[0].numpy()]
        print("\t".join(texts), flush=True)


if __name__ == "__main__":
    main()
