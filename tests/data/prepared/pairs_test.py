"""Which pairs a corpus has: those of the bot's answers, each in one part."""

import json

import pytest

from tests.data.prepared.helpers import SPACES, quiet
from towers.data.prepared import DialoguePreparation, prepare_files


def prepare(path, folder, codec=None, **options):
    settings = DialoguePreparation(SPACES, **{"held_out": 0.2, **options})
    return prepare_files(path, settings, folder / "cache", processes=1, write=quiet, codec=codec)


def pairs_of(corpus, part="train"):
    return [
        (" ".join(question), answer) for question, answer in map(corpus.texts, corpus.pairs(part))
    ]


def write(path, rows):
    path.write_text("".join(f"{question}\t{answer}\n" for question, answer in rows))
    return path


def test_a_pair_that_is_repeated_is_in_one_part(tmp_path):
    """Where training has all held-out pairs too, it gives them up; else the evaluation does."""
    few = [(f"q{number % 10}", f"a{number % 10}") for number in range(200)]
    corpus = prepare(write(tmp_path / "few.tsv", few), tmp_path, held_out=0.02)
    assert pairs_of(corpus) and not set(pairs_of(corpus)) & set(pairs_of(corpus, "held_out"))
    assert any("left out of the training" in line for line in corpus.summary)
    many = [(f"q{number}", f"a{number}") for number in range(200)] + few[:50]
    corpus = prepare(write(tmp_path / "many.tsv", many), tmp_path)
    assert not set(pairs_of(corpus)) & set(pairs_of(corpus, "held_out"))
    assert {f"a{number}" for number in range(10)} <= {answer for _, answer in pairs_of(corpus)}


@pytest.mark.parametrize("pairing", ["alternate", "sliding"])
def test_only_the_bot_answers(tmp_path, pairing):
    record = {"messages": [{"role": role, "content": f"{role} {number}"}
                           for number in range(2) for role in ("assistant", "user")]}  # fmt: skip
    (tmp_path / "chats.jsonl").write_text((json.dumps(record) + "\n") * 20)
    corpus = prepare(tmp_path / "chats.jsonl", tmp_path, pairing=pairing, min_dialogues=1)
    found = pairs_of(corpus) + pairs_of(corpus, "held_out")
    assert set(found) == {("user 0", "assistant 1")}


def test_one_dialogue_is_cut_for_the_held_out_part(tmp_path):
    (tmp_path / "one.json").write_text(json.dumps({"turns": [f"t{n}" for n in range(20)]}))
    corpus = prepare(tmp_path / "one.json", tmp_path)
    assert (len(pairs_of(corpus)), len(pairs_of(corpus, "held_out"))) == (8, 2)
    assert corpus.examples(1) == [{"question": ["t0"], "answer": "t1"}]


def test_other_files_are_evaluated_whole_with_a_vocabulary(tmp_path):
    trained = prepare(write(tmp_path / "a.tsv", [(f"q{n}", f"a{n}") for n in range(40)]), tmp_path)
    other = write(tmp_path / "b.tsv", [("q1", "a2"), ("q3", "new")])
    corpus = prepare(other, tmp_path, codec=trained.text)
    assert corpus.text.vocabulary == trained.text.vocabulary
    assert pairs_of(corpus, "held_out")[0] == ("q1", "a2") and not pairs_of(corpus)
    assert len(pairs_of(corpus, "held_out")) == 2


def test_what_a_training_should_know_is_remarked(tmp_path):
    rows = [(f"q{n}", "yes" if n % 2 else f"a long answer {n}") for n in range(40)]
    corpus = prepare(write(tmp_path / "a.tsv", rows), tmp_path)

    class Fields:
        max_answer_length = 2

    long, common = corpus.remarks(Fields)
    assert "longer than max_answer_length=2" in long and "'yes'" in common
