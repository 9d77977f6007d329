"""The vocabulary of whole words: the most frequent ones, in a fixed order, saved and loaded."""

import pytest

from towers.data.text import (
    SPECIALS,
    LineCodec,
    TextSettings,
    Vocabulary,
    WordVocabulary,
    build_words,
)
from towers.data.text.vocabulary import Unit
from towers.ground.special_ids import PAD
from towers.ground.special_ids import WORD_END as END
from towers.ground.special_ids import WORD_UNKNOWN as UNKNOWN

AS_WRITTEN = TextSettings("en", "spaces", as_written=True)
HEAD = "<pad>\n<eos>\n<unk>\n"


def vocabulary_of(*words):
    return WordVocabulary(map(Unit, ["<eos>", "<unk>", *words]))


def test_the_most_frequent_words_are_kept_in_the_order_of_their_counts():
    counts = {"b": 2, "a": 2, "c": 3, "d": 1, "<unk>": 9, "<eos>": 9, "<pad>": 9}
    vocabulary = build_words(counts, 5)
    assert len(vocabulary) == 6  # Five words and padding.
    assert vocabulary.ids_of(["c", "a", "b"]) == [3, 4, 5]
    assert vocabulary.ids_of(["d", "<unk>", "<eos>"]) == [UNKNOWN, UNKNOWN, END]


def test_a_word_that_looks_like_padding_is_none():
    vocabulary = build_words({"<pad>": 3, "a": 1}, 9)
    assert vocabulary.ids_of(["<pad>", "a"]) == [UNKNOWN, 3]


def test_of_the_special_ids_a_model_says_the_end_alone():
    assert {*WordVocabulary.unspoken, END} == {PAD, END, UNKNOWN}
    assert sorted({*Vocabulary.unspoken, Vocabulary.end}) == list(range(len(SPECIALS)))


def test_decode_inverts_encode():
    codec = LineCodec(AS_WRITTEN, vocabulary_of("one", "two"))
    assert codec.encode("one two\ntwo  three\r\n") == [3, 4, END, 4, UNKNOWN, END]
    assert codec.decode([3, 4, END, 4, PAD]) == "one two\ntwo"
    assert codec.decode([4, UNKNOWN]) == "two <unk>"
    assert codec.encode("") == [] and codec.decode([]) == ""


def test_what_is_saved_is_loaded(tmp_path):
    words = ["\u0161", "1/2", "##", "\\", "``", "X"]
    LineCodec(AS_WRITTEN, vocabulary_of(*words)).save(tmp_path)
    loaded = LineCodec.load(tmp_path)
    assert loaded.decode(loaded.encode(" ".join(words))) == " ".join(words)
    assert len(loaded.vocabulary) == 9


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "words.txt: expected lines that begin with <pad>"),
        ("<pad>\n<unk>\n<eos>\n", "units must begin with <eos>, <unk>"),
        (f"{HEAD}one", "found .* and 'one' at the end"),
        (f"{HEAD}\none\n", "line 4: expected a token"),
        (f"{HEAD}one\none\n", r"words.txt: units must differ.*'one'.* twice"),
    ],
)
def test_a_damaged_file_is_refused(content, message, tmp_path):
    (tmp_path / "words.txt").write_text(content)
    with pytest.raises(ValueError, match=message):
        WordVocabulary.load(tmp_path / "words.txt")


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"Received .*'a'.* twice"):
        vocabulary_of("a", "b", "a")
    with pytest.raises(ValueError, match=r"in 0\.\.3. Received 4"):
        vocabulary_of("a").tokens([4])
    with pytest.raises(ValueError, match="as_written is of the tokenizer spaces"):
        TextSettings("en", "words", as_written=True)
