"""Preparing a text: every line once, the same after a kill, in memory that does not grow."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.data.prepared.text_helpers import all_text, prepare, settings_of, write_stories
from tests.paths import CORPORA, ROOT, missing
from towers.data.folders import PARTS
from towers.data.prepared import TextPreparation, chunks, journal, prepare_texts, prepare_words
from towers.data.prepared import corpus as corpus_module
from towers.data.prepared.texts import TextIds, content_of
from towers.data.reading.text_files import find_texts
from towers.data.reading.word_files import read_words
from towers.data.text import LineCodec, TextSettings, learn_vocabulary
from towers.ground.special_ids import END, PAD, SEPARATOR

CASES = ROOT.parent / "shared" / "cases" / "text"


def letters(lines):
    """Returns the lines in any order, without blanks, which words do not keep."""
    return sorted(line.replace(" ", "") for line in lines)


@pytest.mark.parametrize("tokenizer", ["words", "characters", "subwords"])
def test_every_line_is_in_one_part_and_reads_as_written(tmp_path, tokenizer):
    written = write_stories(tmp_path / "a.txt", 1500)
    corpus = prepare(tmp_path / "a.txt", tmp_path / "cache", tokenizer=tokenizer)
    read = all_text(corpus)
    assert letters(read) == letters(written)
    sizes = [len(corpus.part(part)) for part in PARTS]
    assert sizes[1] > 0 and sizes[2] > 0 and sizes[0] > 5 * max(sizes[1:])
    assert all(corpus.part(part)[-1] == END for part in PARTS)
    characters = sum(len(line.replace(" ", "")) + 1 for line in written)
    assert sum(corpus.num_characters.values()) == characters


def test_names_tell_the_parts(tmp_path):
    for part, number in (("train", 40), ("valid", 20), ("test", 10)):
        write_stories(tmp_path / f"my.{part}.txt", number)
    # As before `validation` was `valid`.
    assert content_of(find_texts([tmp_path])) == "55f62e55e5c7b8e6429e36dd7e63c650"
    corpus = prepare(tmp_path, tmp_path / "cache")
    for part, number in (("train", 40), ("validation", 20), ("test", 10)):
        assert np.count_nonzero(np.asarray(corpus.part(part)) == END) == number
    assert (corpus.folder / "valid.array").exists()
    assert corpus.facts["parts"] == [*corpus.facts["characters"]] == ["train", "validation", "test"]


def test_files_with_the_same_content_are_named(tmp_path):
    for name in ("train", "more", "valid"):
        write_stories(tmp_path / f"my.{name}.txt", 30 + 10 * (name == "more"))
    for name in ("empty", "blank"):
        (tmp_path / f"{name}.txt").touch()
    said = []
    prepare(tmp_path, tmp_path / "cache", said)
    twins = f"with the same content: {tmp_path / 'my.train.txt'} and {tmp_path / 'my.valid.txt'}"
    assert twins in said


def test_the_text_of_the_test_stays_out_of_the_others(tmp_path):
    write_stories(tmp_path / "train.txt", 300)
    (tmp_path / "test.txt").write_text("nnaa nnaa\n" * 200)
    (tmp_path / "notes.pdf").write_bytes(b"?")
    said = []
    corpus = prepare(tmp_path, tmp_path / "cache", lines=said, tokenizer="spaces")
    assert corpus.text.decode(corpus.part("test")[:9].tolist()) == "nnaa nnaa\n"
    assert len(corpus.part("test")) == 200 * 9 and len(corpus.part("validation")) > 100
    units = map(corpus.text.vocabulary.unit, range(len(corpus.text.vocabulary)))
    assert not [unit for unit in units if "nnaa" in str(unit)]
    report = "\n".join(said)
    assert "the names of the files tell: 1 test, 1 cut into train and validation" in report
    assert "left out files that are no texts: 1 .pdf" in report


AS_WRITTEN = {"as_written": True, "spelled": True}


@pytest.mark.parametrize(
    ("length", "count", "options"),
    [(90, 4000, {}), (3000, 120, {}), (9000, 40, {}), (360_000, 1, {}),
     (360_000, 1, AS_WRITTEN), (20_000, 1, AS_WRITTEN)],
)  # fmt: skip
def test_held_out_parts_have_their_share_of_lines_of_any_length(tmp_path, length, count, options):
    words = "one two three four five six seven eight nine ten\n".replace("\n", " ")
    line = (words * (length // len(words) + 1))[:length].strip()
    (tmp_path / "a.txt").write_text(f"{line}\n" * count)
    corpus = prepare(tmp_path / "a.txt", tmp_path / "cache", tokenizer="spaces", **options)
    sizes = {part: len(corpus.part(part)) for part in ("train", "validation", "test")}
    total = sum(sizes.values())
    assert sizes["validation"] / total == pytest.approx(0.1, abs=0.04)
    assert sizes["test"] / total == pytest.approx(0.1, abs=0.04)


@pytest.mark.parametrize("tokenizer", ["bytes", "characters", "spaces"])
def test_as_written_a_long_line_has_the_tokens_of_the_text_and_one_end(tmp_path, tokenizer):
    text = f"{'naïve words  and é ' * 900}\n\n{'你好' * 3000}\tx\n"
    for part, content in (("train", text), ("valid", "a line\n")):
        (tmp_path / f"{part}.txt").write_text(content)
    options = {"tokenizer": tokenizer, "vocabulary_size": 8000, **AS_WRITTEN}
    corpus = prepare(tmp_path, tmp_path / "cache", **options)
    found = corpus.text.decode(corpus.part("train").tolist())
    spaced = "".join(" ".join(line.split()) + "\n" for line in text.splitlines())
    assert found == (spaced if tokenizer == "spaces" else text)
    assert corpus.num_characters["train"] == len(text.replace(" ", ""))


@pytest.mark.parametrize("as_written", [False, True])
def test_a_wrong_encoding_is_told_also_if_few_bytes_are_wrong(tmp_path, as_written):
    line = "the caf\u00e9 owner said he doesn\u2019t know where the r\u00e9sum\u00e9 went\n"
    (tmp_path / "a.txt").write_bytes((line * 400).encode("cp1252"))
    said = []
    options = {"tokenizer": "characters", "as_written": as_written, "spelled": True}
    corpus = prepare(tmp_path / "a.txt", tmp_path / "cache", lines=said, **options)
    report = "\n".join(said)
    assert "do not decode, now U+FFFD (blanks in normalised text): 400 (first: " in report
    instead = "\ufffd" if as_written else " "
    assert all(text.startswith(f"the caf{instead}") for text in all_text(corpus))
    assert "try another (--encoding)" in report


def test_words_that_the_vocabulary_does_not_have_are_spelled(tmp_path):
    written = write_stories(tmp_path / "a.txt", 1000)
    corpus = prepare(tmp_path / "a.txt", tmp_path / "cache", vocabulary_size=100)
    assert len(corpus.text.vocabulary) == 100
    assert letters(all_text(corpus)) == letters(written)


def test_words_that_occur_once_are_spelled_so_that_spelling_is_learnt(tmp_path):
    lines = [f"the {word} is near" for word in ["kite"] * 200 + ["zorvik"]]
    (tmp_path / "train.txt").write_text("\n".join([*lines[:100], lines[-1], *lines[100:-1]]))
    (tmp_path / "valid.txt").write_text("the vizrok is near\n")
    unread = []
    for least in (1, 2):
        corpus = prepare(tmp_path, tmp_path / f"cache{least}", min_count=least)
        ids = corpus.part("validation")
        assert corpus.text.decode(ids.tolist()).strip() == "the vizrok is near"
        unread.append(int((corpus.unigram_counts[ids] == 0).sum()))
    assert unread[0] == len("vizrok") and unread[1] < unread[0]


def test_tokens_of_the_training_part_are_counted(tmp_path):
    write_stories(tmp_path / "a.txt", 1000)
    corpus = prepare(tmp_path / "a.txt", tmp_path / "cache", vocabulary_size=100)
    expected = np.bincount(corpus.part("train"), minlength=100)
    np.testing.assert_array_equal(corpus.unigram_counts, expected)


def test_of_a_long_text_blocks_from_everywhere_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_module, "COUNTED", 1000)
    monkeypatch.setattr(corpus_module, "BLOCK", 100)
    write_stories(tmp_path / "a.txt", 1000)
    corpus = prepare(tmp_path / "a.txt", tmp_path / "cache", vocabulary_size=100)
    ids = np.asarray(corpus.part("train"))
    assert corpus.unigram_counts.sum() == 1000
    ends = np.bincount(np.r_[ids[:100], ids[-100:]], minlength=100)
    assert (corpus.unigram_counts >= ends).all()


def test_a_second_start_reads_the_cache(tmp_path):
    write_stories(tmp_path / "a.txt", 800)
    first, again, changed = [], [], []
    corpus = prepare(tmp_path / "a.txt", tmp_path / "cache", first)
    assert first == corpus.summary and "800 lines" in first[0]
    assert prepare(tmp_path / "a.txt", tmp_path / "cache", again).key == corpus.key
    assert again == []
    assert isinstance(corpus.part("train"), np.memmap)
    (tmp_path / "a.txt").write_text((tmp_path / "a.txt").read_text() + "One more line .\n")
    assert prepare(tmp_path / "a.txt", tmp_path / "cache", changed).key != corpus.key
    assert not list((tmp_path / "cache").glob(".*.unfinished"))


def test_a_damaged_cache_is_prepared_again(tmp_path):
    write_stories(tmp_path / "a.txt", 800)
    corpus, lines = prepare(tmp_path / "a.txt", tmp_path / "cache"), []
    expected = np.array(corpus.part("validation"))
    damaged = np.array(corpus.part("validation"))
    damaged[5] ^= 1
    (corpus.folder / "valid.array").write_bytes(damaged.tobytes())
    repaired = prepare(tmp_path / "a.txt", tmp_path / "cache", lines)
    assert "is damaged" in lines[0]
    np.testing.assert_array_equal(repaired.part("validation"), expected)


@pytest.mark.parametrize("change", [lambda text: text.replace("anna", "hanna"), None])
def test_a_damaged_vocabulary_is_prepared_again(tmp_path, change):
    write_stories(tmp_path / "a.txt", 800)
    corpus, lines = prepare(tmp_path / "a.txt", tmp_path / "cache"), []
    expected = all_text(corpus)
    vocabulary = corpus.folder / "text" / "vocabulary.txt"
    if change:
        written = vocabulary.read_text()
        assert change(written) != written
        vocabulary.write_text(change(written))
    else:
        vocabulary.unlink()
    assert all_text(prepare(tmp_path / "a.txt", tmp_path / "cache", lines)) == expected
    assert "is damaged" in lines[0]


def test_another_encoding_is_advised_and_no_other_language(tmp_path):
    text = "ascii only\n今天天气真不错啊我们出去走走吧\n" * 700
    (tmp_path / "a.txt").write_bytes(text.encode("gb18030"))
    lines = []
    prepare(tmp_path / "a.txt", tmp_path / "cache", lines, language="zh", tokenizer="characters")
    assert any("--encoding" in line for line in lines)
    assert not any("--language" in line for line in lines)


def test_subwords_are_learnt_from_long_lines(tmp_path):
    pytest.importorskip("sentencepiece")
    text = " ".join(write_stories(tmp_path / "a.txt", 3000))
    (tmp_path / "a.txt").write_text(text)
    corpus = prepare(tmp_path / "a.txt", tmp_path / "cache", tokenizer="subwords")
    written = (corpus.folder / "text" / "vocabulary.txt").read_text().split()
    assert any(len(piece) > 5 for piece in written[5:])  # Words, and not single letters only.


def test_a_full_disk_is_said_and_what_was_written_stays(tmp_path, monkeypatch):
    write_stories(tmp_path / "a.txt", 800)

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(TextIds, "save", fail)
    with pytest.raises(OSError, match=r"No space left.*What is prepared stays"):
        prepare(tmp_path / "a.txt", tmp_path / "cache")
    monkeypatch.undo()
    assert len(prepare(tmp_path / "a.txt", tmp_path / "cache").part("train")) > 0


def test_letters_of_another_language_are_told_in_one_line(tmp_path):
    write_stories(tmp_path / "a.txt", 800)
    lines = []
    prepare(tmp_path / "a.txt", tmp_path / "cache", lines, language="zh", tokenizer="characters")
    assert sum("give --language en" in line for line in lines) == 1


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 1000)
    monkeypatch.setattr(journal, "SECONDS_BETWEEN_SAVES", 0.0)


@pytest.mark.parametrize(
    "num_chunks",
    [pytest.param(0, marks=pytest.mark.slow), 3, pytest.param(7, marks=pytest.mark.slow)],
)
def test_a_preparation_that_stopped_goes_on_with_the_same_bits(
    tmp_path, small_chunks, monkeypatch, num_chunks
):
    """Also with ids behind the journal's last line, which a kill leaves."""
    write_stories(tmp_path / "a.txt", 1000)
    expected = prepare(tmp_path / "a.txt", tmp_path / "whole")
    add, left = TextIds.add, [num_chunks]

    def fail(self, chunk, parts):
        if not left[0]:
            self.append("train", b"behind the journal")
            raise KeyboardInterrupt
        left[0] -= 1
        add(self, chunk, parts)

    monkeypatch.setattr(TextIds, "add", fail)
    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path / "a.txt", tmp_path / "cache")
    monkeypatch.setattr(TextIds, "add", add)
    lines = []
    corpus = prepare(tmp_path / "a.txt", tmp_path / "cache", lines)
    assert ("goes on after" in lines[0]) == (num_chunks > 0)
    for part in PARTS:
        np.testing.assert_array_equal(corpus.part(part), expected.part(part))
    assert corpus.summary == expected.summary


@pytest.mark.slow
def test_a_killed_preparation_goes_on_with_the_same_bits(tmp_path):
    write_stories(tmp_path / "a.txt", 3000)
    text = (tmp_path / "a.txt").read_text()
    (tmp_path / "a.txt").write_text(text * 60)
    program = (
        "import sys\n"
        "from tests.data.prepared.text_helpers import settings_of\n"
        "from towers.data.prepared import journal\n"
        "from towers.data.prepared import prepare_texts\n"
        "journal.SECONDS_BETWEEN_SAVES = 0.2\n"
        "corpus = prepare_texts([sys.argv[1]], settings_of(), sys.argv[2], processes=2)\n"
        "print(corpus.folder)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.txt")]

    def journals():
        return list((tmp_path / "cache").glob(".*.unfinished/work/journal.json"))

    for least in (1, 10):
        process = subprocess.Popen([*command, str(tmp_path / "cache")], cwd=ROOT)
        while process.poll() is None:
            found = [json.loads(path.read_text())["state"]["chunks"] for path in journals()]
            if found and found[0] >= least:
                os.kill(process.pid, signal.SIGKILL)
                break
            time.sleep(0.02)
        assert process.wait() == -signal.SIGKILL
    for name in ("cache", "whole"):
        subprocess.run([*command, str(tmp_path / name)], cwd=ROOT, check=True)
    (one,), (other,) = ([*(tmp_path / name).glob("[!.]*")] for name in ("cache", "whole"))
    names = {path.relative_to(one) for path in one.rglob("*") if path.is_file()}
    assert names == {path.relative_to(other) for path in other.rglob("*") if path.is_file()}
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"held_out": 0.0}, "held_out must be above 0"),
        ({"held_out": 0.3}, "up to 0.25. Received 0.3"),
        ({"vocabulary_size": 5}, "vocabulary_size must be at least 6"),
        ({"encoding": "nonsense"}, "encoding must be the name of a text codec"),
        ({"field": ""}, "text_field must be the name of a field"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, options, message):
    write_stories(tmp_path / "a.txt", 10)
    with pytest.raises(ValueError, match=message):
        prepare(tmp_path / "a.txt", tmp_path / "cache", **options)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "must have lines to train on. Received none"),
        (b"\n \n\t\n", "must have lines to train on"),
        (b"\0\0\0\n" * 9, "must have lines to train on"),
        (
            b"A short text .\n",
            "for the parts train and validation. Received 5 and 0 tokens",
        ),
    ],
)
def test_a_text_without_enough_lines_is_refused(tmp_path, content, message):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        prepare(tmp_path / "a.txt", tmp_path / "cache")


def test_an_evaluation_without_lines_is_refused_for_what_it_lacks(tmp_path):
    write_stories(tmp_path / "a.txt", 200)
    codec = prepare(tmp_path / "a.txt", tmp_path / "cache").text
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(ValueError, match="must have lines to evaluate") as raised:
        prepare_texts([tmp_path / "empty.txt"], settings_of(), tmp_path / "cache", codec=codec)
    assert "held_out" not in str(raised.value)


def test_documents_end_in_each_part_that_has_some_of_them(tmp_path):
    """Also those of which a part has only lines from their middle."""
    files = ["".join(f"w{name} {'x' * 90}\n" for _ in range(60)) for name in "abcdefgh"]
    for number, text in enumerate(files):
        (tmp_path / f"{number}.txt").write_text(text)
    said = []
    options = {"tokenizer": "spaces", "documents": True}
    corpus = prepare(tmp_path, tmp_path / "cache", lines=said, **options)
    assert "8 documents, each ended by a token of its own" in said[0]
    for part in PARTS:
        ids = corpus.part(part)
        documents = np.split(ids, np.flatnonzero(ids == SEPARATOR) + 1)
        assert len(documents.pop()) == 0 and len(documents) >= 5
        names = [{line[:2] for line in corpus.text.decode(one).split()[::2]} for one in documents]
        assert all(len(name) == 1 for name in names)
    assert corpus.text.begin == corpus.text.stop == SEPARATOR
    assert SEPARATOR not in corpus.text.unspoken and PAD in corpus.text.unspoken


def test_an_end_that_is_written_is_the_end_of_a_document(tmp_path):
    text = "".join(f"a story {number}\nits end\n<|endoftext|>\n" for number in range(200))
    (tmp_path / "train.txt").write_text(text)
    (tmp_path / "valid.txt").write_text("a story\n<|endoftext|>\nanother one\n")
    said = []
    corpus = prepare(tmp_path, tmp_path / "cache", said, documents=True)
    assert "202 documents" in said[0]
    assert np.count_nonzero(corpus.part("train") == SEPARATOR) == 200
    assert np.count_nonzero(corpus.part("validation") == SEPARATOR) == 2


@pytest.mark.parametrize("tokenizer", ["bytes", "subwords"])
def test_code_is_prepared_as_it_is_written(tmp_path, tokenizer):
    if tokenizer == "subwords":
        pytest.importorskip("sentencepiece")
    code = "int f()\r\n{\n\n\tputs(\"a -- 'é'  “b”\");\n}\n"
    for number in range(60):
        (tmp_path / f"{number}.c").write_bytes(code.replace("f", f"f{number:02}").encode() * 9)
    exact = {"as_written": True, "spelled": True, "documents": True}
    corpus = prepare(tmp_path, tmp_path / "c", tokenizer=tokenizer, vocabulary_size=500, **exact)
    files = []
    for part in PARTS:
        files += corpus.text.decode(corpus.part(part).tolist()).split("}\n\n")
        assert corpus.unknown_rate(part) == 0
    assert sorted(filter(None, files)) == sorted(
        (code.replace("f", f"f{n:02}") * 9).removesuffix("}\n") for n in range(60)
    )
    assert {"text": ""} in corpus.examples(9) and {"text": "int f00()\r"} in corpus.examples(9)


def test_the_summary_says_what_was_understood_in_at_most_ten_lines(tmp_path):
    text = "“Quoted” text \u2013 here\n" * 2000 + "\0\n" * 5 + "x" * 20_000 + "\n"
    (tmp_path / "train.txt").write_bytes(text.encode() + b"caf\xe9 is long enough\n")
    (tmp_path / "valid.txt").write_text("text here and now\n" * 99)
    (tmp_path / "b.pdf").write_bytes(b"?")
    said = []
    prepare(tmp_path, tmp_path / "cache", said, documents=True)
    report = "\n".join(said)
    assert len(said) <= 10
    parts = ["2 documents", "letters: 100% Latin", "lines have other quotes", "NUL characters: 5"]
    for expected in [*parts, "pieces of lines", "1 .pdf", "tokens are unknown"]:
        assert expected in report


def test_the_key_of_what_was_prepared_before_stays():
    old = {"code": False, "vocabulary_size": 20000, "held_out": 0.02}
    key = TextPreparation(TextSettings("en"), **old).key("x")
    assert key == "c4fc28811adda9bdd1fbb4f5133709ac"
    changed = [{"marks": True}, {"documents": True}, {"as_written": True, "spelled": True}]
    keys = {TextPreparation(TextSettings("en", **one), **old).key("x") for one in changed}
    assert len(keys | {key, TextPreparation(TextSettings("en")).key("x")}) == 5


@pytest.mark.skipif(not CASES.is_dir(), reason="the folder of cases is not here")
def test_the_cases_of_texts_are_right(tmp_path):
    lines = prepare(CASES / "cr_line_ends", tmp_path / "c").examples(3)
    written = (CASES / "cr_line_ends" / "train.txt").read_bytes().decode().split("\r")
    assert letters(one["text"] for one in lines) == letters(written[:3])
    words = prepare_words(read_words(CASES / "cr_line_ends"), 99, tmp_path / "c", write=str)
    assert [one["text"] for one in words.examples(3)] == written[:3]
    records = prepare(CASES / "two_line_records.jsonl", tmp_path / "c", documents=True)
    ids = records.part("train")
    assert np.count_nonzero(ids == END) == 2 * np.count_nonzero(ids == SEPARATOR) > 100
    for path in (CASES / "code").iterdir():
        text = TextSettings("en", "bytes", as_written=True, spelled=True)
        codec = LineCodec(text, learn_vocabulary(text, {}, 300))
        assert codec.decode(codec.encode(path.read_text("utf-8"))) == path.read_text("utf-8")


@pytest.mark.slow
@pytest.mark.skipif(not (CORPORA / "ptb").is_dir(), reason=missing("ptb"))
def test_the_penn_treebank_has_its_published_counts(tmp_path):
    options = {"tokenizer": "spaces", "vocabulary_size": 12000}
    corpus = prepare(CORPORA / "ptb", tmp_path / "cache", **options)
    sizes = [len(corpus.part(part)) for part in PARTS]
    assert sizes == [929_589, 73_760, 82_430]
