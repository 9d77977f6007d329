"""Texts from files: the parts, their tokens, and what is no text."""

import gzip

import numpy as np
import pytest

from tests.paths import CORPORA, missing
from towers.data.language import END, UNKNOWN, load_language, make_language

PENN_TREEBANK = CORPORA / "ptb"


def write(folder, names="{part}.txt", **texts):
    for part, text in texts.items():
        (folder / names.format(part=part)).write_bytes(text.encode())
    return folder


def test_every_line_ends_with_the_end(tmp_path):
    folder = write(tmp_path, train=" a b \n a \n", valid="b\r\n\r\na c")
    text = load_language(folder, vocabulary_size=9)
    a, b = text.vocabulary.ids(["a", "b"])
    assert text.part("train").tolist() == [a, b, END, a, END]
    assert text.part("valid").tolist() == [b, END, END, a, UNKNOWN, END]
    assert text.part("train").dtype == np.int32
    assert text.unknown_share("valid") == 1 / 6


@pytest.mark.parametrize("names", ["ptb.{part}.txt", "wiki.{part}.tokens", "{part}.txt.gz"])
def test_usual_names_are_found(names, tmp_path):
    texts = {"train": "a b\n", "valid": "a\n", "test": "b\n"}
    for part, text in texts.items():
        content = gzip.compress(text.encode()) if names.endswith("gz") else text.encode()
        (tmp_path / names.format(part=part)).write_bytes(content)
    loaded = load_language(tmp_path, vocabulary_size=9)
    assert {part: loaded.vocabulary.decode(ids) for part, ids in loaded.parts.items()} == texts


def test_only_line_feeds_end_a_line():
    text = make_language({"train": "a\u2028b\x0cc d\n"}, vocabulary_size=9)
    assert text.vocabulary.decode(text.part("train")) == "a b c d\n"


def test_the_key_changes_with_the_text():
    texts = [{"train": "a b\n"}, {"train": "b a\n"}, {"train": "a b\n", "valid": "a\n"}]
    keys = [make_language(parts, vocabulary_size=5).key for parts in (*texts, texts[0])]
    assert len(set(keys)) == 3 and keys[0] == keys[3]


def test_a_missing_file_is_named_with_a_remedy(tmp_path):
    folder = write(tmp_path, train="a\n")
    with pytest.raises(FileNotFoundError, match=r"ptb\.valid\.txt or .* --data"):
        load_language(folder, vocabulary_size=5)
    with pytest.raises(FileNotFoundError, match=r"nowhere has no file ptb\.train\.txt"):
        load_language(tmp_path / "nowhere", vocabulary_size=5)


@pytest.mark.parametrize(
    "content, found",
    [(b"", "found none"), (b" \n\n", "found none"), (b"\xff\xfea", "0xff"), (b"a\0b\n", "a zero")],
)
def test_a_bad_file_is_named_with_what_was_found(content, found, tmp_path):
    write(tmp_path, train="a\n")
    (tmp_path / "valid.txt").write_bytes(content)
    with pytest.raises(ValueError, match=rf"valid\.txt: expected .*{found}"):
        load_language(tmp_path, vocabulary_size=5)


def test_a_part_that_is_not_there_is_named(tmp_path):
    text = make_language({"train": "a\n", "valid": "a\n"}, vocabulary_size=5)
    with pytest.raises(ValueError, match=r"has the parts train, valid. Received 'test'"):
        text.part("test")


def test_the_penn_treebank_has_its_published_counts():
    if not PENN_TREEBANK.exists():
        pytest.skip(missing("ptb"))
    text = load_language(PENN_TREEBANK, vocabulary_size=10000)
    counts = {part: len(tokens) for part, tokens in text.parts.items()}
    assert counts == {"train": 929589, "valid": 73760, "test": 82430}
    assert len(text.vocabulary) == 10001
    line = text.vocabulary.decode(text.part("valid")[:15])
    assert line == "consumers may want to move their telephones a little closer to the tv set\n"


def test_a_mark_of_byte_order_is_no_word(tmp_path):
    for part in ("train", "valid"):
        (tmp_path / f"{part}.txt").write_text("\ufeffthe end\n", encoding="utf-8")
    words = load_language(tmp_path, vocabulary_size=10).vocabulary
    assert words.ids(["the", "end"]) == [3, 4] or words.ids(["end", "the"]) == [3, 4]
