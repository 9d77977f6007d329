"""Texts of whole words from files: the parts, their tokens, and what is no text."""

import gzip

import pytest

from tests.data.prepared.helpers import quiet
from tests.paths import CORPORA, missing
from towers.data.prepared import prepare_words
from towers.data.reading.word_files import read_words
from towers.ground.special_ids import WORD_END as END
from towers.ground.special_ids import WORD_UNKNOWN as UNKNOWN

PENN_TREEBANK = CORPORA / "ptb"


def write(folder, names="{part}.txt", **texts):
    for part, text in texts.items():
        (folder / names.format(part=part)).write_bytes(text.encode())
    return folder


@pytest.fixture
def prepare(tmp_path):
    def prepare(texts, vocabulary_size=9):
        return prepare_words(texts, vocabulary_size, tmp_path / "cache", write=quiet)

    return prepare


def test_every_line_ends_with_the_end(tmp_path, prepare):
    folder = write(tmp_path, train=" a b \n a \n", valid="b\r\n\r\na c")
    corpus = prepare(read_words(folder))
    a, b = corpus.text.vocabulary.ids_of(["a", "b"])
    assert corpus.part("train").tolist() == [a, b, END, a, END]
    assert corpus.part("validation").tolist() == [b, END, END, a, UNKNOWN, END]
    assert corpus.summary[-1].endswith("9.09% of the tokens are unknown")


def test_a_carriage_return_ends_a_line(tmp_path, prepare):
    corpus = prepare(read_words(write(tmp_path, train="a b\ra\r", valid="b\r")))
    a, b = corpus.text.vocabulary.ids_of(["a", "b"])
    assert corpus.part("train").tolist() == [a, b, END, a, END]


@pytest.mark.parametrize("names", ["ptb.{part}.txt", "wiki.{part}.tokens", "{part}.txt.gz"])
def test_usual_names_are_found(names, tmp_path, prepare):
    texts = {"train": "a b\n", "validation": "a\n", "test": "b\n"}
    for part, text in texts.items():
        content = gzip.compress(text.encode()) if names.endswith("gz") else text.encode()
        (tmp_path / names.format(part=part)).write_bytes(content)
    corpus = prepare(read_words(tmp_path))
    assert {part: corpus.text.decode(corpus.part(part)) for part in texts} == texts


def test_only_line_feeds_end_a_line_and_nothing_is_normalised(prepare):
    corpus = prepare({"train": "a\u2028b\x0c\u201cC\u201d \uff44\n", "validation": "a\n"})
    assert corpus.text.decode(corpus.part("train")) == "a b \u201cC\u201d \uff44\n"


def test_every_word_of_a_long_text_is_counted(prepare):
    """Also where a text that is normalised would be sampled."""
    lines = [f"often rare{number} {'x' * 900}" for number in range(10_000)]
    corpus = prepare({"train": "\n".join(lines), "validation": "often\n"}, vocabulary_size=20_000)
    assert len(corpus.text.vocabulary) == 3 + 10_000 + 2


def test_the_key_changes_with_the_text(prepare):
    texts = [
        {"train": "a b\n", "validation": "a\n"},
        {"train": "b a\n", "validation": "a\n"},
        {"train": "a b\n", "validation": "b\n"},
    ]
    keys = [prepare(parts).key for parts in (*texts, texts[0])]
    assert len(set(keys)) == 3 and keys[0] == keys[3]


def test_a_missing_file_is_named_with_a_remedy(tmp_path):
    folder = write(tmp_path, train="a\n")
    with pytest.raises(FileNotFoundError, match=r"ptb\.valid\.txt or .* --data"):
        read_words(folder)
    with pytest.raises(FileNotFoundError, match=r"nowhere has no file ptb\.train\.txt"):
        read_words(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content, found",
    [
        (b"", "found none"),
        (b" \n\n", "found none"),
        (b"\xff\xfea", "truncated data"),
        (b"a\0b\n", "a zero"),
    ],
)
def test_a_bad_file_is_named_with_what_was_found(content, found, tmp_path):
    write(tmp_path, train="a\n")
    (tmp_path / "valid.txt").write_bytes(content)
    with pytest.raises(ValueError, match=rf"valid\.txt: expected .*{found}"):
        read_words(tmp_path)


def test_a_part_that_is_not_there_is_named(prepare):
    corpus = prepare({"train": "a\n", "validation": "a\n"})
    with pytest.raises(ValueError, match=r"has the parts train, validation. Received 'test'"):
        corpus.part("test")


def test_the_penn_treebank_has_its_published_counts(prepare):
    if not PENN_TREEBANK.exists():
        pytest.skip(missing("ptb"))
    corpus = prepare(read_words(PENN_TREEBANK), vocabulary_size=10000)
    counts = {part: len(corpus.part(part)) for part in ("train", "validation", "test")}
    assert counts == {"train": 929589, "validation": 73760, "test": 82430}
    assert len(corpus.text.vocabulary) == 10001
    line = corpus.text.decode(corpus.part("validation")[:15])
    assert line == "consumers may want to move their telephones a little closer to the tv set\n"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_mark_of_byte_order_is_no_word(tmp_path, prepare, encoding):
    for part in ("train", "validation"):
        (tmp_path / f"{part}.txt").write_text("the end\n", encoding=encoding)
    words = prepare(read_words(tmp_path), vocabulary_size=10).text.vocabulary
    assert words.ids_of(["the", "end"]) in ([3, 4], [4, 3])
