"""The vocabulary of whole words: the most frequent ones, in a fixed order, saved and loaded."""

import pytest

from towers.data.language import END, PAD, UNKNOWN, WordVocabulary, build_words


def test_the_most_frequent_words_are_kept_in_the_order_of_their_counts():
    counts = {"b": 2, "a": 2, "c": 3, "d": 1, "<unk>": 9, "<eos>": 9, "<pad>": 9}
    vocabulary = build_words(counts, 5)
    assert len(vocabulary) == 6  # Five words and padding.
    assert vocabulary.ids(["c", "a", "b"]) == [3, 4, 5]
    assert vocabulary.ids(["d", "<unk>", "<eos>"]) == [UNKNOWN, UNKNOWN, END]


def test_a_word_that_looks_like_padding_is_none():
    vocabulary = build_words({"<pad>": 3, "a": 1}, 9)
    assert vocabulary.ids(["<pad>", "a"]) == [UNKNOWN, 3]


def test_decode_inverts_encode():
    vocabulary = WordVocabulary(["one", "two"])
    assert vocabulary.encode("one two\ntwo  three\r\n") == [3, 4, END, 4, UNKNOWN, END]
    assert vocabulary.decode([3, 4, END, 4, PAD]) == "one two\ntwo"
    assert vocabulary.encode("") == [] and vocabulary.decode([]) == ""


def test_what_is_saved_is_loaded(tmp_path):
    words = ["\u0161", "1/2", "##", "\\"]
    WordVocabulary(words).save(tmp_path)
    loaded = WordVocabulary.load(tmp_path)
    assert loaded.decode(loaded.ids(words)) == " ".join(words)
    assert len(loaded) == 7


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "words.txt: expected a word in each line"),
        ("<pad>\n<unk>\n<eos>\n", "the first <pad>, <eos>, <unk>"),
        ("<pad>\n<eos>\n<unk>\none", "found .* and 'one' at the end"),
        ("<pad>\n<eos>\n<unk>\n\none\n", "expected a word in each line"),
        ("<pad>\n<eos>\n<unk>\none\none\n", "words.txt: words must differ.*'one' twice"),
    ],
)
def test_a_damaged_file_is_refused(content, message, tmp_path):
    (tmp_path / "words.txt").write_text(content)
    with pytest.raises(ValueError, match=message):
        WordVocabulary.load(tmp_path)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"size must be at least 3.*Received 2"):
        build_words({"a": 1}, 1 + 1)
    with pytest.raises(ValueError, match="Received 'a' twice"):
        WordVocabulary(["a", "b", "a"])
    with pytest.raises(ValueError, match=r"in 0\.\.3. Received 4"):
        WordVocabulary(["a"]).decode([4])
