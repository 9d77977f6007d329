"""Mixed corpora, named columns and near-duplicate answers, from files to pairs."""

import pytest

from tests.data.prepared.helpers import SPACES
from towers.data.batches.pairs import pair_batches
from towers.data.prepared import DialoguePreparation, prepare_files
from towers.data.reading.layout import Layout

LIMITS = {
    "batch_tokens": 1000,
    "batch_size": 50,
    "max_question_length": 20,
    "max_answer_length": 20,
}


def write_pairs(path, name, count, answer="{name} answer {number}"):
    rows = (f"{name} question {n}\t{answer.format(name=name, number=n)}" for n in range(count))
    path.write_text("\n".join(rows) + "\n")
    return path


def answers_of(corpus, part="train"):
    return [corpus.texts(pair)[1] for pair in corpus.pairs(part)]


def prepare(paths, folder, lines=None, **options):
    write = (lambda line: None) if lines is None else lines.append
    settings = DialoguePreparation(SPACES, held_out=0.2, **options)
    return prepare_files(paths, settings, folder, processes=1, write=write)


def test_weights_say_how_often_a_file_is_trained_on(tmp_path):
    a, b = (write_pairs(tmp_path / f"{name}.tsv", name, 100) for name in "ab")
    plain = prepare([a, b], tmp_path / "cache")
    mixed = prepare([f"{a}:3", f"{b}:0.5"], tmp_path / "cache")
    assert mixed.key != plain.key
    once, often = answers_of(plain), answers_of(mixed)
    assert {often.count(one) for one in once if one.startswith("a")} == {3}
    assert {often.count(one) for one in once if one.startswith("b")} == {0, 1}
    assert sorted(answers_of(plain, "held_out")) == sorted(answers_of(mixed, "held_out"))
    assert prepare([f"{a}:1", b], tmp_path / "cache").key == plain.key


def test_no_file_is_held_out_and_trained_on(tmp_path):
    (tmp_path / "folder").mkdir()
    paths = [write_pairs(tmp_path / "folder" / f"{name}.tsv", name, 100) for name in "ab"]
    corpus = prepare([tmp_path / "folder", f"{paths[1]}:3", f"{paths[1]}:3"], tmp_path / "cache")
    trained, held_out = answers_of(corpus), answers_of(corpus, "held_out")
    assert not set(trained) & set(held_out)
    assert len(held_out) == len(set(held_out)) and len({*trained, *held_out}) == 200
    assert {trained.count(one) for one in trained if one.startswith("a")} == {1}
    assert {trained.count(one) for one in trained if one.startswith("b")} == {3}


def test_the_parts_that_names_tell_are_those_of_files_with_weights_too(tmp_path):
    paths = [write_pairs(tmp_path / f"{name}.tsv", name, 50) for name in ("train", "test")]
    corpus = prepare([f"{paths[0]}:2", paths[1]], tmp_path / "cache")
    trained, held_out = answers_of(corpus), answers_of(corpus, "held_out")
    assert len(trained) == 100 and all(one.startswith("train") for one in trained)
    assert len(held_out) == 50 and all(one.startswith("test") for one in held_out)


def test_names_of_columns_are_part_of_the_key(tmp_path):
    path = tmp_path / "talk.csv"
    rows = "".join(f"q {n},a {n},b {n}\n" for n in range(30))
    path.write_text("question,answer,other\n" + rows)
    usual = prepare(path, tmp_path / "cache")
    other = prepare(path, tmp_path / "cache", layout=Layout(columns=("question", "other")))
    assert answers_of(usual)[0].startswith("a") and answers_of(other)[0].startswith("b")
    with pytest.raises(ValueError, match=r"columns must name .* Received 'question' alone"):
        prepare(path, tmp_path / "cache", layout=Layout(columns=("question",)))


def test_answers_that_differ_in_little_count_as_one(tmp_path):
    same = ["I do not know", "i do not know .", "I do not know !", "I do do not know ."]
    rows = [f"question {n}\t{same[n % 4]}" for n in range(40)]
    rows += [f"other {n}\tAnswer {n} ." for n in range(40)]
    rows += [f"more {n}\t!" for n in range(5)]
    (tmp_path / "a.tsv").write_text("\n".join(rows))
    corpus = prepare(tmp_path / "a.tsv", tmp_path / "cache", min_dialogues=1)
    batches = pair_batches(corpus, "train", max_answer_repeats=2, **LIMITS)
    kept = [corpus.texts(pair)[1].lower() for pair in batches.source.pairs]
    assert sum("know" in answer for answer in kept) == 2
    everything = [answer.lower() for answer in answers_of(corpus)]
    assert sum("answer" in one for one in kept) == sum("answer" in one for one in everything)


def test_letters_of_another_language_are_told_in_one_line(tmp_path):
    rows = "".join(f"今天天气{n}真不错\t我们出去走走吧\n" for n in range(60))
    (tmp_path / "a.tsv").write_text(rows)
    lines = []
    path = tmp_path / "a.tsv"
    settings = DialoguePreparation(type(SPACES)(language="en"), held_out=0.2)
    prepare_files(path, settings, tmp_path / "cache", processes=1, write=lines.append)
    assert sum("give --language zh" in line for line in lines) == 1
