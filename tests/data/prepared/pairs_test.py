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


@pytest.mark.parametrize("held_out", [0.02, 0.2, 0.5])
def test_pairs_that_are_all_repeated_are_dealt_out(tmp_path, held_out):
    few = [(f"q{number % 10}", f"a{number % 10}") for number in range(500)]
    corpus = prepare(write(tmp_path / "few.tsv", few), tmp_path, held_out=held_out)
    parts = [set(pairs_of(corpus, part)) for part in ("train", "held_out")]
    assert all(parts) and not parts[0] & parts[1] and parts[0] | parts[1] == set(few)
    assert any("that the other part has" in line for line in corpus.summary)


def test_training_keeps_most_of_a_corpus_whose_pairs_are_repeated(tmp_path):
    """A fifth of the held-out pairs is enough, or a thousand."""
    many = [(f"q{number % 500}", f"a{number % 500}") for number in range(5000)]
    corpus = prepare(write(tmp_path / "many.tsv", many), tmp_path, held_out=0.02)
    train, held_out = (pairs_of(corpus, part) for part in ("train", "held_out"))
    assert not set(train) & set(held_out)
    assert len(held_out) >= 15 and len(train) >= 4500


def test_one_pair_alone_stays_in_both_parts(tmp_path):
    corpus = prepare(write(tmp_path / "one.tsv", [("q", "a")] * 100), tmp_path)
    assert any(" are trained on too" in line for line in corpus.summary)


def test_a_pair_that_is_repeated_is_in_one_part(tmp_path):
    """The held-out part keeps what it needs, and gives up the others."""
    few = [(f"q{number % 10}", f"a{number % 10}") for number in range(200)]
    corpus = prepare(write(tmp_path / "few.tsv", few), tmp_path, held_out=0.02)
    assert pairs_of(corpus) and not set(pairs_of(corpus)) & set(pairs_of(corpus, "held_out"))
    assert any("that the other part has" in line for line in corpus.summary)
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


def test_the_summary_of_a_rich_file_has_at_most_ten_lines(tmp_path):
    roles = ("system", "user", "tool", "critic", "assistant")
    records = [
        {"id": n, "source": "x", "messages": [
            *({"role": role, "content": f"{role} {n % 40} said"} for role in roles),
            {"role": "user", "content": "..." if n % 9 else "caf\ufffd bar"},
            {"role": "assistant", "content": "yes" if n % 2 else "a very long answer"}]}
        for n in range(200)
    ]  # fmt: skip
    (tmp_path / "chats.jsonl").write_text("".join(f"{json.dumps(one)}\n\n" for one in records))
    said = []
    settings = DialoguePreparation(SPACES, held_out=0.2)
    prepare_files(tmp_path, settings, tmp_path / "c", processes=1, write=said.append)
    report = "\n".join(said)
    for expected in (
        "not used: id (200), source (200)", "left out: system (200), tool (200), critic (200)",
        "blank lines", "turns without a letter", "bytes that do not decode",
        "letters: 100% Latin", "that the other part has", "tokens are unknown",
    ):  # fmt: skip
        assert expected in report
    assert len(said) <= 7  # The command adds common answers, long ones, and the folder.


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


@pytest.mark.parametrize(("num_long", "context"), [(0, 0), (1, 0), (8, 2), (200, 2)])
def test_the_context_of_a_corpus_is_what_its_questions_have_not_once_but_often(
    tmp_path, num_long, context
):
    talks = [[f"q{number}", f"a{number}"] for number in range(300)]
    long = [[f"t{number}", f"u{number}", f"v{number}", f"w{number}"] for number in range(num_long)]
    path = tmp_path / "talks.tsv"
    path.write_text("".join("\t".join(turns) + "\n" for turns in [*talks, *long]))
    assert prepare(path, tmp_path, context=2).context == context
