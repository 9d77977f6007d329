"""A prompt stays as it was typed, whatever its ids make of it."""

import pytest

from towers.data.text import LineCodec, TextSettings, learn_vocabulary
from towers.scripts.commands.generate import continued


@pytest.mark.parametrize(
    ("tokenizer", "typed", "further"),
    [
        ("words", "He  Said", " that"),
        ("words", "He said ", "that"),
        ("words", "Hello", ", he said"),
        ("words", "'Hello", "' he said"),
        ("words", "Hello\n", "he said"),
        ("words", "", "hello"),
        ("characters", "He  said", " that"),
        ("bytes", "Caf\u00e9 ", "\u00e9 that"),
    ],
)
def test_what_is_added_follows_the_prompt_as_it_was_typed(tokenizer, typed, further):
    settings = TextSettings("en", tokenizer=tokenizer)
    words = [*"abcdefghijklmnopqrstuvwxyz',\u00e9 ", "hello", "he", "said", "that"]
    codec = LineCodec(settings, learn_vocabulary(settings, dict.fromkeys(words, 9), 300))
    prompt = codec.encode(typed)
    ids = codec.encode(typed + further)[len(prompt) :]
    assert continued(codec, typed, prompt, ids) == typed + further
