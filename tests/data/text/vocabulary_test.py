"""The vocabulary spells what it lacks, confuses nothing and comes back from its file."""

import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towers.data.text.vocabulary import NUM_COPIES, SPECIALS, Unit, Vocabulary, build_vocabulary
from towers.ground.special_ids import END, PAD, SEPARATOR, START, UNKNOWN

COUNTS = {"我们": 9, "的": 30, "天气": 5, "hello": 7, "help": 1, "T恤": 2, "天": 1, ".": 12}
TOKEN = st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.sampled_from(
    [
        *SPECIALS,
        "<copy_0>",
        "<copy_",
        "\\<copy_0>",
        "##a",
        "#",
        "##",
        "\\",
        "\\##a",
        "\\n",
        "\n",
        "\r",
        "\u2028",
        "\x85",
        " ",
        "a b",
    ]
)


def spelled(vocabulary, token):
    return [vocabulary.unit(unit_id) for unit_id in vocabulary.ids(token)]


def test_specials_have_the_first_ids():
    assert [PAD, START, END, UNKNOWN, SEPARATOR] == [0, 1, 2, 3, 4]
    assert len(SPECIALS) == 5
    assert build_vocabulary(COUNTS, 1000).ids("的") == (5,)


def test_size_is_not_exceeded_and_used_up():
    for size in range(6, 30):
        assert len(build_vocabulary(COUNTS, size)) == size


def test_frequent_tokens_have_their_own_ids_in_order():
    vocabulary = build_vocabulary(COUNTS, 1000)
    ids = [vocabulary.ids(token) for token in ["的", ".", "我们", "hello", "天气", "T恤"]]
    assert all(len(token_ids) == 1 for token_ids in ids)
    assert ids == sorted(ids)


def test_order_does_not_follow_that_of_the_counting():
    shuffled = random.Random(0).sample(sorted(COUNTS.items()), len(COUNTS))
    assert build_vocabulary(dict(shuffled), 25) == build_vocabulary(COUNTS, 25)


def test_rare_tokens_are_spelled_by_characters():
    vocabulary = build_vocabulary(COUNTS, 1000)
    assert spelled(vocabulary, "天们") == [Unit("天"), Unit("们")]
    assert spelled(vocabulary, "hT") == [Unit("h"), Unit("T", continues=True)]
    assert spelled(vocabulary, "o天p") == [Unit("o"), Unit("天"), Unit("p", continues=True)]


def test_only_a_character_never_seen_is_unknown():
    vocabulary = build_vocabulary(COUNTS, 1000)
    assert vocabulary.ids("天空") == (*vocabulary.ids("天"), UNKNOWN)
    assert UNKNOWN not in vocabulary.ids("".join(COUNTS))


def test_rarest_characters_give_way_to_words():
    counts = Counter({chr(0x4E00 + index) * 2: 1 for index in range(100)})
    counts["常见"] = 1000
    vocabulary = build_vocabulary(counts, 5 + 20)
    texts = [vocabulary.unit(unit_id).text for unit_id in range(5, 25)]
    assert sum(len(text) == 1 for text in texts) == 10
    assert {"常见", "常", "见"} < set(texts)


COMMON = {token: count for token, count in COUNTS.items() if count > 1}
COPIES = build_vocabulary(COMMON, 1000, copies=True)


def test_with_copies_the_vocabulary_holds_words_and_no_characters():
    assert len(COPIES) == 5 + NUM_COPIES + len(COMMON)
    assert COPIES.copies == range(5, 5 + NUM_COPIES)
    assert COPIES.ids("的") == (COPIES.copies.stop,)
    assert COPIES.ids("help") == COPIES.ids("天们") == (UNKNOWN,)
    assert COPIES.id_of("help") is None and COPIES.id_of("的") == COPIES.copies.stop


def test_copies_stand_for_the_words_of_a_question():
    hello = COPIES.id_of("hello")
    ids = [COPIES.copies[1], hello, COPIES.copies[0], UNKNOWN, COPIES.copies[2]]
    assert COPIES.tokens(ids, ["zorvik", "mimba"]) == ["mimba", "hello", "zorvik"]
    assert COPIES.tokens(ids) == ["hello"]


def test_copies_leave_room_for_a_word():
    assert len(build_vocabulary(COUNTS, 6 + NUM_COPIES, copies=True)) == 6 + NUM_COPIES


@given(st.dictionaries(TOKEN, st.integers(1, 100), min_size=1), st.integers(22, 60))
def test_vocabulary_with_copies_comes_back_from_its_file(tmp_path_factory, counts, size):
    vocabulary = build_vocabulary(counts, size, copies=True)
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.txt"
    vocabulary.save(path)
    assert Vocabulary.load(path) == vocabulary


@given(st.dictionaries(TOKEN, st.integers(1, 100), min_size=1), st.integers(6, 60))
def test_vocabulary_comes_back_from_its_file(tmp_path_factory, counts, size):
    vocabulary = build_vocabulary(counts, size)
    path = tmp_path_factory.getbasetemp() / "vocabulary.txt"
    vocabulary.save(path)
    assert Vocabulary.load(path) == vocabulary


@given(st.lists(TOKEN, min_size=1))
def test_tokens_come_back_from_their_ids(tokens):
    letters = Counter(character for token in tokens for character in token)
    vocabulary = build_vocabulary(letters, 1000)
    for token in tokens:
        assert "".join(vocabulary.tokens(vocabulary.ids(token))) == token


def test_continuation_is_joined_only_to_what_it_continues():
    vocabulary = build_vocabulary({"ab": 1, "c": 1}, 100)
    a, b = vocabulary.ids("a"), vocabulary.ids("cb")[1:]
    assert vocabulary.tokens([*a, *b, *b, *a]) == ["abb", "a"]
    assert vocabulary.tokens([*a, SEPARATOR, *b]) == ["a", "b"]
    assert vocabulary.tokens([*b, UNKNOWN, *b]) == ["b", "b"]


def test_token_that_looks_special_or_marked_is_plain():
    vocabulary = build_vocabulary({"<pad>": 3, "##b": 3, "ab": 1}, 100)
    (looks_special,), (looks_marked,) = vocabulary.ids("<pad>"), vocabulary.ids("##b")
    assert looks_special != PAD
    assert vocabulary.tokens([PAD, looks_special, looks_marked]) == ["<pad>", "##b"]
    assert vocabulary.unit(looks_marked) != Unit("b", continues=True)


@pytest.mark.parametrize("wrong", [-1, 6])
def test_id_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match=rf"ids must be in 0\.\.5. Received {wrong}"):
        Vocabulary([Unit("a")]).tokens([5, wrong])


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "expected lines that begin with <pad>"),
        (b"hello\nworld\n", "expected lines that begin with <pad>"),
        ("\n".join([*SPECIALS, "cut of"]).encode(), "'cut of' at the end"),
        ("\n".join([*SPECIALS, "a", "", ""]).encode(), "line 7: expected a token, found ''"),
        ("\n".join([*SPECIALS, "##", ""]).encode(), "line 6: expected a token, found '##'"),
        ("\n".join([*SPECIALS, "a\\x", ""]).encode(), "line 6: expected a token"),
        ("\n".join([*SPECIALS, "a", "a", ""]).encode(), "twice"),
        (b"\xff\xfe<\x00", "expected UTF-8 text"),
    ],
)
def test_damaged_file_is_refused(tmp_path, content, found):
    path = tmp_path / "vocabulary.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(path)) + f".*{re.escape(found)}"):
        Vocabulary.load(path)


def test_failed_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "vocabulary.txt"
    Vocabulary([Unit("a")]).save(path)
    with pytest.raises(UnicodeEncodeError):
        Vocabulary([Unit("\ud800")]).save(path)
    assert Vocabulary.load(path) == Vocabulary([Unit("a")])
    assert list(tmp_path.iterdir()) == [path]
