"""A corpus is prepared once: what the cache holds, when it is used, and what harms it."""

import contextlib
import dataclasses
import itertools
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import towers.data.prepared.dialogues as module
from tests.data.pairing import pair_turns
from tests.data.prepared.helpers import SHARED, SPACES, quiet
from tests.paths import ROOT, missing
from tests.programs import PATIENCE
from towers.data.prepared import (
    DialogueCorpus,
    DialoguePreparation,
    chunks,
    dialogue_index,
    journal,
    prepare_dialogues,
    prepare_files,
)
from towers.data.prepared.dialogues import is_held_out
from towers.data.prepared.learning import evenly_spaced
from towers.data.text import TextSettings
from towers.ground.special_ids import UNKNOWN

WORDS = list("abcdefghijklmnop")


def random_dialogues(count, seed=0, longest=6):
    random_ = random.Random(seed)
    return [
        [
            " ".join(random_.choices(WORDS, k=random_.randint(0, 7)))
            for _ in range(random_.randint(1, longest))
        ]
        for _ in range(count)
    ]


def conv_file(path, dialogues):
    lines = [line for turns in dialogues for line in ["E", *(f"M {turn}" for turn in turns)]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def files_of(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("pairing", ["alternate", "sliding"])
@pytest.mark.parametrize("context", [0, 2])
def test_pairs_are_those_of_the_dialogues(tmp_path, small_chunks, pairing, context):
    dialogues = random_dialogues(300)
    settings = DialoguePreparation(SPACES, pairing=pairing, context=context, held_out=0.2)
    corpus = prepare_dialogues(dialogues, None, settings, tmp_path, write=quiet)
    expected = {"train": [], "held_out": []}
    for number, turns in enumerate(dialogues):
        part = expected["held_out" if is_held_out(number, 0.2) else "train"]
        for first, answer in pair_turns(len(turns), pairing=pairing, context=context):
            if turns[answer] and turns[answer - 1]:
                part.append(([turn for turn in turns[first:answer] if turn], turns[answer]))
    for part, pairs in expected.items():
        assert pairs
        assert [corpus.texts(pair) for pair in corpus.pairs(part)] == pairs


def test_dialogues_that_are_given_as_held_out_stay_so(tmp_path):
    train, held_out = [["a b", "c"]] * 3, [["b", "a c"], ["c", "b"]]
    corpus = prepare_dialogues(train, held_out, DialoguePreparation(SPACES), tmp_path, write=quiet)
    assert [corpus.texts(pair) for pair in corpus.train_pairs] == [(["a b"], "c")] * 3
    assert [corpus.texts(pair) for pair in corpus.held_out_pairs] == [
        (["b"], "a c"),
        (["c"], "b"),
    ]


def test_unigram_perplexity_and_unknown_rate_are_those_of_the_definition(tmp_path):
    train = [["x", "a a b"], ["y", "a c"]]
    held_out = [["x", "a b"], ["x", "b q"]]
    corpus = prepare_dialogues(train, held_out, DialoguePreparation(SPACES), tmp_path, write=quiet)
    counts = {"a": 3, "b": 1, "c": 1, "x": 0, "y": 0, "end": 2}
    others = len(corpus.text.vocabulary) - len(counts) - 1  # The special ones but UNKNOWN.
    total = sum(counts.values()) + len(counts) + others
    said = ["a", "b", "end", "b", "end"]
    expected = -sum(math.log((counts[token] + 1) / total) for token in said) / len(said)
    assert math.isclose(corpus.unigram_perplexity, math.exp(expected), rel_tol=1e-12)
    ids = corpus.text.encode("x a b") + corpus.text.encode("x b q")
    assert corpus.unknown_rate == ids.count(UNKNOWN) / len(ids) > 0


def test_any_number_of_processes_gives_the_same_files(tmp_path):
    dialogues = random_dialogues(3 * chunks.CHUNK_TEXTS)
    folders = []
    for processes in (1, 2, 3):
        corpus = prepare_dialogues(
            dialogues,
            None,
            DialoguePreparation(SPACES),
            tmp_path / str(processes),
            processes=processes,
            write=quiet,
        )
        folders.append(files_of(corpus.folder))
    assert folders[0] == folders[1] == folders[2]


def test_a_second_start_uses_the_cache(tmp_path):
    path = conv_file(tmp_path / "some.conv", random_dialogues(200))
    said = []
    first = prepare_files(path, DialoguePreparation(SPACES), tmp_path / "caches", write=said.append)
    assert any("pairs to train on" in line for line in said)
    times = {p: p.stat().st_mtime_ns for p in first.folder.rglob("*")}
    said.clear()
    second = prepare_files(
        [path], DialoguePreparation(SPACES), tmp_path / "caches", write=said.append
    )
    assert second.folder == first.folder and not said
    assert {p: p.stat().st_mtime_ns for p in second.folder.rglob("*")} == times


@pytest.mark.parametrize(
    "change",
    [
        {"vocabulary_size": 12},
        {"pairing": "sliding"},
        {"context": 1},
        {"held_out": 0.3},
        {"text": TextSettings("en", tokenizer="characters")},
        {"text": TextSettings("en", tokenizer="spaces", lowercase=True)},
    ],
)
def test_other_settings_have_a_cache_of_their_own(tmp_path, change):
    path = conv_file(tmp_path / "some.conv", random_dialogues(200))
    settings = DialoguePreparation(SPACES)
    other = dataclasses.replace(settings, **change)
    first = prepare_files(path, settings, tmp_path / "caches", write=quiet)
    second = prepare_files(path, other, tmp_path / "caches", write=quiet)
    assert first.key != second.key and first.folder.exists() and second.folder.exists()


def test_other_content_has_a_cache_of_its_own_and_another_name_has_not(tmp_path):
    dialogues = random_dialogues(200)
    path, renamed = (conv_file(tmp_path / name, dialogues) for name in ("some.conv", "x.conv"))
    changed = conv_file(tmp_path / "changed.conv", [*dialogues, ["a", "b"]])
    keys = [
        prepare_files(one, DialoguePreparation(SPACES), tmp_path / "caches", write=quiet).key
        for one in (path, renamed, changed)
    ]
    assert keys[0] == keys[1] != keys[2]


def test_a_changed_user_dictionary_has_a_cache_of_its_own(tmp_path):
    dictionary = tmp_path / "words.txt"
    keys = []
    for word in ("云计算", "大数据"):
        dictionary.write_text(f"{word} 900000\n", encoding="utf-8")
        settings = TextSettings("zh", user_dictionary=str(dictionary))
        dialogues = [["云计算", "大数据"]] * 4
        corpus = prepare_dialogues(
            dialogues, dialogues, DialoguePreparation(settings), tmp_path / "caches", write=quiet
        )
        keys.append(corpus.key)
        assert word in corpus.text.vocabulary.tokens(range(len(corpus.text.vocabulary)))
    assert keys[0] != keys[1]


def test_subwords_are_learned_from_what_is_not_held_out(tmp_path):
    settings = TextSettings("en", "subwords")
    train = [["the newest of the new", "a wider and lower widow"]] * 50
    corpus = prepare_dialogues(
        train,
        [["xyzzy", "newer"]],
        DialoguePreparation(settings, 40),
        tmp_path / "caches",
        write=quiet,
    )
    text = corpus.text
    assert Path(text.settings.subword_model) == corpus.folder / "text" / "subwords.model"
    assert len(text.vocabulary) <= 40
    assert corpus.texts(corpus.train_pairs[0]) == (["the newest of the new"], train[0][1])
    assert len(text.encode("the newest")) < len("the newest")
    assert "z" not in "".join(text.vocabulary.tokens(range(len(text.vocabulary))))
    again = prepare_dialogues(
        train,
        [["xyzzy", "newer"]],
        DialoguePreparation(settings, 40),
        tmp_path / "again",
        write=quiet,
    )
    assert files_of(again.folder) == files_of(corpus.folder)


def test_dialogues_in_memory_are_not_said_to_be_read_from_files(tmp_path):
    dialogues = random_dialogues(200)
    corpus = prepare_dialogues(
        dialogues, None, DialoguePreparation(SPACES), tmp_path / "caches", write=quiet
    )
    assert "pairs to train on" in corpus.summary[0]


@pytest.mark.parametrize(("count", "expected"), [(5, 10), (4, 5), (3, 5), (2, 3), (1, 2)])
def test_a_sample_of_texts_is_evenly_spaced(count, expected):
    kept = evenly_spaced((str(number) for number in range(10)), 2 * count)
    assert len(kept) == expected <= 2 * count
    steps = {int(after) - int(before) for before, after in itertools.pairwise(kept)}
    assert kept[0] == "0" and len(steps) == 1


@pytest.mark.parametrize("damage", ["cut", "removed", "manifest", "flipped", "summary"])
def test_a_damaged_cache_is_prepared_again_with_a_warning(tmp_path, damage):
    dialogues = random_dialogues(200)
    corpus = prepare_dialogues(dialogues, None, DialoguePreparation(SPACES), tmp_path, write=quiet)
    before = files_of(corpus.folder)
    tokens = corpus.folder / "tokens.array"
    if damage == "cut":
        os.truncate(tokens, 100)
    elif damage == "removed":
        tokens.unlink()
    elif damage == "manifest":
        (corpus.folder / "manifest.json").write_text("{")
    elif damage == "flipped":
        flip(tokens, 200)
    else:
        flip(corpus.folder / "manifest.json", 60)
    with pytest.raises(ValueError, match="prepared corpus"):
        DialogueCorpus(corpus.folder)
    said = []
    prepare_dialogues(dialogues, None, DialoguePreparation(SPACES), tmp_path, write=said.append)
    assert said[0].startswith("warning: ") and "prepared again" in said[0]
    assert files_of(corpus.folder) == before
    assert [path.name for path in tmp_path.iterdir()] == [corpus.key]


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
def test_no_flipped_byte_of_a_cache_passes_unnoticed(tmp_path):
    corpus = prepare_dialogues(
        random_dialogues(20), None, DialoguePreparation(SPACES, held_out=0.3), tmp_path, write=quiet
    )
    passed = []
    num_bytes = 0
    for path in sorted(corpus.folder.rglob("*")):
        if path.is_file():
            for place in range(path.stat().st_size):
                flip(path, place)
                num_bytes += 1
                with contextlib.suppress(ValueError):
                    DialogueCorpus(corpus.folder)
                    passed.append((path.name, place))
                flip(path, place)
    print(f"{num_bytes} bytes flipped, {len(passed)} unnoticed")
    assert num_bytes > 1000 and not passed


def test_a_full_disk_is_a_clear_error_and_what_was_written_stays(small_disk, tmp_path):
    """Wherever it fills up: each time with a little more room."""
    dialogues = random_dialogues(3000)
    failures = 0
    for free in (4096, 50_000, 100_000, 150_000):
        ballast = small_disk / "ballast"
        size = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        ballast.write_bytes(b"x" * max(0, size - free))
        try:
            prepare_dialogues(
                dialogues, None, DialoguePreparation(SPACES), small_disk / "caches", write=quiet
            )
        except OSError as error:
            failures += 1
            assert f"cannot be prepared in {small_disk / 'caches'}: " in str(error)
            assert "Make room" in str(error)
            assert not list((small_disk / "caches").glob("[!.]*"))
        ballast.unlink()
    assert failures >= 3
    corpora = [
        prepare_dialogues(dialogues, None, DialoguePreparation(SPACES), folder, write=quiet)
        for folder in (small_disk / "caches", tmp_path)
    ]
    assert files_of(corpora[0].folder) == files_of(corpora[1].folder)


def test_an_error_while_it_is_prepared_leaves_nothing(tmp_path):
    path = conv_file(tmp_path / "some.conv", [["", ""]] * 3)
    with pytest.raises(ValueError):
        prepare_files(path, DialoguePreparation(SPACES), tmp_path / "caches", write=quiet)
    with pytest.raises(ValueError, match="at least one pair to train on"):
        prepare_dialogues(
            [["a", "b"]], None, DialoguePreparation(SPACES), tmp_path / "caches", write=quiet
        )
    assert not list((tmp_path / "caches").glob("*"))


@pytest.mark.parametrize("share", [0.001, 0.02, 0.5, 0.999])
@pytest.mark.parametrize("count", [2, 3, 60])
def test_a_few_dialogues_are_trained_on_and_held_out(tmp_path, share, count):
    dialogues = [[f"q{number}", f"a{number}"] for number in range(count)]
    settings = DialoguePreparation(SPACES, held_out=share)
    corpus = prepare_dialogues(dialogues, None, settings, tmp_path, write=quiet)
    parts = [len(corpus.pairs(part)) for part in ("train", "held_out")]
    assert sum(parts) == count and min(parts) >= 1


SLOW_PREPARATION = """
import sys, time
from towers.data.prepared import DialoguePreparation, prepare_dialogues
from towers.data.text import TextSettings
import towers.data.prepared.dialogues as module

take = module.in_chunks
def slowly(turns):
    for chunk in take(turns):
        print("chunk", flush=True)
        time.sleep(0.2)
        yield chunk
module.in_chunks = slowly
dialogues = [["a b", "c d"]] * 100_000
settings = TextSettings("en", tokenizer="spaces")
prepare_dialogues(dialogues, None, DialoguePreparation(settings), sys.argv[1], processes=2)
"""


def test_a_killed_preparation_leaves_no_cache_and_no_process(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_PREPARATION, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    for _ in range(4):
        assert process.stdout.readline() == "chunk\n"
    workers = children_of(process.pid)
    assert len(workers) == 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + PATIENCE
    while any(os.path.exists(f"/proc/{pid}") for pid in workers):
        assert time.monotonic() < deadline, "the workers of a killed program go on"
        time.sleep(0.05)
    assert all(path.name.startswith(".") for path in tmp_path.iterdir())


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_TEXTS", 50)
    monkeypatch.setattr(journal, "SECONDS_BETWEEN_SAVES", 0.0)


SLOW = pytest.mark.slow
SMALL_SETTINGS = {
    "context": {"context": 2, "pairing": "sliding", "min_dialogues": 3},
    "copies": {"copy_unknown": True, "vocabulary_size": 30},
}


@pytest.mark.parametrize(
    "settings, num_chunks",
    [
        pytest.param(*case, marks=() if case in (("context", 3), ("copies", 100)) else SLOW)
        for case in itertools.product(SMALL_SETTINGS, (0, 3, 12, 100))
    ],
)
def test_a_preparation_that_stopped_goes_on_with_the_same_bits(
    tmp_path, small_chunks, monkeypatch, settings, num_chunks
):
    """Also with bytes behind the journal, which a kill leaves; 100 is after the last chunk."""
    path = conv_file(tmp_path / "some.conv", random_dialogues(300))
    settings = DialoguePreparation(SPACES, held_out=0.2, **SMALL_SETTINGS[settings])
    expected = prepare_files(path, settings, tmp_path / "whole", processes=1, write=quiet)
    add, left = dialogue_index.DialogueIndex.add, [num_chunks]

    def fail(self, chunk, marks):
        if not left[0]:
            self.append("tokens", b"behind the journal")
            raise KeyboardInterrupt
        left[0] -= 1
        add(self, chunk, marks)

    def fail_later(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        if num_chunks == 100:
            patched.setattr(module, "write_dialogues", fail_later)
        else:
            patched.setattr(dialogue_index.DialogueIndex, "add", fail)
        prepare_files(path, settings, tmp_path / "caches", processes=1, write=quiet)
    read, said = [], []
    monkeypatch.setattr(module, "read_dialogues", counted(module.read_dialogues, read))
    corpus = prepare_files(path, settings, tmp_path / "caches", processes=1, write=said.append)
    assert files_of(corpus.folder) == files_of(expected.folder)
    assert ("goes on after" in said[0]) == (0 < num_chunks < 100)
    assert bool(read) == (num_chunks < 100)
    assert list((tmp_path / "caches").iterdir()) == [corpus.folder]


def test_a_preparation_that_stopped_after_its_manifest_goes_on(tmp_path, monkeypatch):
    """Then there is a manifest already, maybe half of one."""
    path = conv_file(tmp_path / "some.conv", random_dialogues(100))
    write = module.write_dialogues

    def fail_after(index, folder, *arguments, **options):
        write(index, folder, *arguments, **options)
        os.truncate(folder / "manifest.json", 99)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(module, "write_dialogues", fail_after)
        prepare_files(
            path, DialoguePreparation(SPACES), tmp_path / "caches", processes=1, write=quiet
        )
    corpora = [
        prepare_files(path, DialoguePreparation(SPACES), tmp_path / name, processes=1, write=quiet)
        for name in ("caches", "whole")
    ]
    assert files_of(corpora[0].folder) == files_of(corpora[1].folder)


def counted(function, calls):
    def call(*arguments, **options):
        calls.append(arguments)
        return function(*arguments, **options)

    return call


@pytest.mark.slow
def test_a_killed_preparation_goes_on_with_the_same_bits(tmp_path):
    path = conv_file(tmp_path / "some.conv", random_dialogues(60_000))
    program = (
        "import sys\n"
        "from tests.data.prepared.helpers import SPACES\n"
        "from towers.data.prepared import DialoguePreparation, prepare_files\n"
        "from towers.data.prepared import journal\n"
        "journal.SECONDS_BETWEEN_SAVES = 0.1\n"
        "prepare_files(sys.argv[1], DialoguePreparation(SPACES), sys.argv[2], processes=2)\n"
    )
    command = [sys.executable, "-c", program, str(path)]

    def prepared_chunks():
        journals = (tmp_path / "cache").glob(".*.unfinished/work/journal.json")
        return sum(json.loads(path.read_text())["state"]["chunks"] for path in journals)

    for least in (1, 20):
        process = subprocess.Popen([*command, str(tmp_path / "cache")], cwd=ROOT)
        while process.poll() is None and prepared_chunks() < least:
            time.sleep(0.02)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    for name in ("cache", "whole"):
        subprocess.run([*command, str(tmp_path / name)], cwd=ROOT, check=True)
    one, other = (files_of(tmp_path / name) for name in ("cache", "whole"))
    assert one == other


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        return [int(child) for child in file.read().split()]


def prepare_at_once(folder):
    prepare_dialogues(
        random_dialogues(2000), None, DialoguePreparation(SPACES), folder, write=quiet
    )


def test_two_preparations_at_once_do_not_harm_each_other(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=prepare_at_once, args=(tmp_path,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    (folder,) = tmp_path.iterdir()
    alone = prepare_dialogues(
        random_dialogues(2000), None, DialoguePreparation(SPACES), tmp_path / "alone", write=quiet
    )
    assert files_of(folder) == files_of(alone.folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"held_out": 0}, "held_out must be between 0 and 1. Received 0."),
        ({"held_out": 1.5}, "Received 1.5."),
        ({"vocabulary_size": 5}, "at least 6"),
        ({"pairing": "zigzag"}, "zigzag"),
        ({"context": -1}, "-1"),
    ],
)
def test_wrong_settings_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        DialoguePreparation(SPACES, **arguments)


def test_missing_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"nothing\.conv"):
        prepare_files(tmp_path / "nothing.conv", DialoguePreparation(SPACES), tmp_path / "caches")


def test_a_missing_library_or_model_is_an_error_of_every_process(tmp_path):
    settings = TextSettings("zh", user_dictionary=str(tmp_path / "none.txt"))
    for processes in (1, 2):
        with pytest.raises(ValueError, match=r"none\.txt"):
            prepare_dialogues(
                [["a", "b"]] * 5000, None, DialoguePreparation(settings), tmp_path / "caches",
                processes=processes, write=quiet,
            )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "zh").is_dir(), reason=missing("zh"))
def test_real_dialogues_are_nearly_all_known(tmp_path):
    with open(SHARED / "zh" / "dgk_100k.conv", "rb") as file:
        head = file.read(400_000)
    path = tmp_path / "head.conv"
    path.write_bytes(head[: head.rindex(b"\nE") + 1])
    corpus = prepare_files(
        path, DialoguePreparation(TextSettings("zh")), tmp_path / "caches", write=quiet
    )
    assert len(corpus.train_pairs) > 1000 and corpus.unknown_rate < 0.01
    assert isinstance(corpus.tokens, np.memmap)
    shutil.rmtree(corpus.folder)
