"""The embedded dialogues: held-out ones are not in the training part, but can be answered."""

import collections
import functools
import hashlib
import itertools
import json
import re
import string

import pytest

from tests.data.pairing import pair_turns
from tests.paths import ROOT
from towers.data.samples.conversations import (
    conversations,
    labelled_dialogues,
    read_patterns,
)
from towers.data.samples.conversations.contents import made_up, made_up_word
from towers.data.samples.conversations.generation import MARKS, Variant, combinations, fill
from towers.data.samples.conversations.patterns import LANGUAGES, WORDINGS, wordings
from towers.data.text import TextSettings, make_tokenizer

EACH_LANGUAGE = pytest.mark.parametrize("language", LANGUAGES)
# The digests tell that no dialogue has changed: what holds for their contents still does.
OF_THE_SAME_CONTENTS = pytest.mark.slow
CONTEXT = 6
# A plant to jieba, and what five and plus make without a blank; learning a language is one word,
# and so are for ships and what one loves to do.
JOINED = {"五加", "学习外语", "船用", "爱喝", "爱看", "爱玩"}
# Feelings and how much one feels them are often one word, such as `太高兴`, and so are `大` or
# `小` and a number beside it: `大一`, `大几`.
OFTEN_JOINED = {
    "ages compared in other words",
    "feelings with how",
    "larger within words in other words",
    "numbers within words in other words",
}
# Alternatives that are spread over all wordings: a few words are in one or two of them. And
# made-up words that are said alone.
WITH_RARE_WORDS = {"small talk in other words", "new single words in other words"}
# Kinds whose made-up words are made of any words, also known ones: these are copied too.
OF_ANY_WORDS = {
    "pets of any words remembered",
    "dogs and cats of any words remembered",
    "names of any words remembered",
}


def dialogues(language, part):
    """Returns the turns of each dialogue of a part."""
    return [turns for _, turns in labelled_dialogues(language, part)]


def pairs(language, part):
    """Returns (turns of the question with its context, answer) of every pair."""
    found = []
    for turns in dialogues(language, part):
        for first, answer in pair_turns(len(turns), pairing="alternate", context=CONTEXT):
            found.append((tuple(turns[first:answer]), turns[answer]))
    return found


@pytest.mark.parametrize(
    ("language", "part", "digest"),
    [
        ("en", "train", "f8b27cc3c1d9bf9c4ab38f83bfd5433561446e9201b9c3bada095428744ace98"),
        ("en", "held_out", "365f1d5f9fb5c71417df3956206409a02b8eeb6ca7984a7d3c6047706c387ebc"),
        ("zh", "train", "d48dcbe58d69b7964b6079d7f991687c9a4505cfc6858f6c932839bc11660ff6"),
        ("zh", "held_out", "597abe9ca0791572d472fb4327321663673584eb823e76fb8b79a90919004079"),
    ],
    ids=["en-train", "en-held_out", "zh-train", "zh-held_out"],
)
def test_the_dialogues_and_their_order_never_change(language, part, digest):
    """A run can be resumed, and results compared, only with the same dialogues."""
    content = json.dumps(conversations(language, part)).encode()
    assert hashlib.sha256(content).hexdigest() == digest


@OF_THE_SAME_CONTENTS
@EACH_LANGUAGE
def test_there_is_enough_of_both_parts(language):
    assert len(dialogues(language, "train")) > 10_000
    assert len(dialogues(language, "held_out")) > 200


@OF_THE_SAME_CONTENTS
@EACH_LANGUAGE
def test_no_held_out_dialogue_is_in_the_training_with_any_opening(language):
    openings = [opening for opening in read_patterns(language).openings if opening]

    def bare(turns):
        opened = (turns[0].removeprefix(o) for o in openings if turns[0].startswith(o))
        first = next(opened, turns[0]).strip()
        return tuple(turn.rstrip(MARKS) for turn in (first, *turns[1:]))

    trained = {bare(turns) for turns in dialogues(language, "train")}
    held_out = [bare(turns) for turns in dialogues(language, "held_out")]
    assert len(set(held_out)) == len(held_out)
    assert not trained & set(held_out)


@OF_THE_SAME_CONTENTS
@EACH_LANGUAGE
def test_no_question_has_two_answers(language):
    """Capitals and the marks at the ends of the questions make no other question."""
    answers = {}
    for part in ("train", "held_out"):
        for question, answer in pairs(language, part):
            key = tuple(turn.lower().rstrip(MARKS) or turn for turn in question)
            assert answers.setdefault(key, answer) == answer, question


@OF_THE_SAME_CONTENTS
@EACH_LANGUAGE
def test_every_held_out_token_of_known_contents_occurs_in_the_training(language):
    """Contents of few uses are held out as a whole: names and topics that a chatbot never saw."""
    settings = TextSettings(language, split_counts=True)
    tokenizer = make_tokenizer(settings)
    known = {kind.name for kind in read_patterns(language).kinds if kind.uses is None}

    def tokens(dialogues):
        turns = {turn for dialogue in dialogues for turn in dialogue}
        return {token for turn in turns for token in tokenizer.tokenize(settings.normalise(turn))}

    held_out = labelled_dialogues(language, "held_out")
    of_known = [turns for name, turns in held_out if name in known]
    assert tokens(of_known) <= tokens(dialogues(language, "train"))
    assert len(of_known) > 200
    assert len(held_out) - len(of_known) > 200


@OF_THE_SAME_CONTENTS
@EACH_LANGUAGE
def test_every_held_out_content_and_phrasing_occurs_in_the_training(language):
    kinds = {name for name, _ in labelled_dialogues(language, "held_out")}
    assert len(kinds) > 20
    assert kinds <= {name for name, _ in labelled_dialogues(language, "train")}
    for kind in read_patterns(language).kinds:
        assert not kind.held_out or len(kind.phrasings) >= 3


@OF_THE_SAME_CONTENTS
@EACH_LANGUAGE
def test_the_text_of_a_gap_is_tokenised_as_words_of_its_own(language):
    settings = TextSettings(language, split_counts=True)
    tokenizer = make_tokenizer(settings)
    openings = read_patterns(language).openings

    @functools.cache
    def tokens(text):
        return tokenizer.tokenize(settings.normalise(text))

    def is_joined(phrasing, content):
        """Returns whether a gap's text and what stands around it become one word."""
        for pattern, turn in zip(
            phrasing, fill(Variant(), phrasing, content, language), strict=True
        ):
            found = " ".join(["", *tokens(turn), ""])
            for gap in re.findall(r"{(\w+)}", pattern):
                if f" {' '.join(tokens(content[gap]))} " not in found:
                    return not JOINED & set(found.split())
        return False

    checked, joined = 0, []
    for kind in read_patterns(language).kinds:
        for number, content in enumerate(kind.contents):
            for phrasing in phrasings_in_use(kind, number, openings):
                checked += kind.uses is not None
                if is_joined(kind.phrasings[phrasing], content):
                    joined.append((kind.name, kind.phrasings[phrasing], content))
    # In Chinese a few make another word with what stands beside them, as real ones do.
    joined = [one for one in joined if one[0] not in OFTEN_JOINED]
    assert len(joined) < checked / 200


def phrasings_in_use(kind, content, openings):
    """Returns the numbers of the phrasings with which a content occurs in either part."""
    both = [combinations(kind, content, part, openings) for part in ("train", "held_out")]
    return {phrasing for found in both for phrasing, _ in found}


def made_up_kinds(language):
    """Returns the kinds with made-up words, each of which is in one dialogue."""
    return [
        kind
        for kind in read_patterns(language).kinds
        if kind.uses == 1
        and kind.name != "one large number"
        and not kind.name.endswith("in other words")
    ]


def made_up_words(language, but=()):
    """Returns the names, pets' names, places, words and numbers that are made up."""
    return [
        content[gap]
        for kind in made_up_kinds(language)
        if kind.name not in but
        for content in kind.contents
        for gap in content
        if gap in ("name", "place", "word", "number", "a", "b", "c")
    ]


@OF_THE_SAME_CONTENTS
@EACH_LANGUAGE
def test_each_made_up_word_is_in_one_dialogue_at_most_and_in_another_that_is_interrupted(language):
    """Not every phrasing has all gaps. Words in three dialogues would get an id."""
    words = made_up_words(language)
    assert len(set(words)) == len(words) > 1500

    def most(of_part):
        spoken = [turns for part in ("train", "held_out") for turns in of_part(language, part)]
        dialogues_with = collections.Counter(
            word for turns in spoken for word in set(re.findall("[a-z]+|[0-9]+", " ".join(turns)))
        )
        return max(dialogues_with[word] for word in words if word.isascii())

    assert (most(dialogues), most(conversations)) == (1, 2)


@OF_THE_SAME_CONTENTS
@EACH_LANGUAGE
def test_held_out_made_up_words_are_not_in_the_training(language):
    def words(part):
        names = {kind.name for kind in made_up_kinds(language)}
        labelled = labelled_dialogues(language, part)
        texts = ["/".join(turns).lower() for name, turns in labelled if name in names]
        return {word for text in texts for word in re.findall("[a-z]{5,}|[0-9]{3,}", text)}

    made_up_of_all = set(made_up_words(language))
    held_out = words("held_out") & made_up_of_all
    assert len(held_out) > 60
    assert not held_out & words("train")


@OF_THE_SAME_CONTENTS
def test_each_beginning_of_a_held_out_name_is_one_of_the_training():
    """Else a name tests a word that the training has nowhere."""
    openings = read_patterns("zh").openings
    kinds = [kind for kind in made_up_kinds("zh") if kind.name in OF_ANY_WORDS]

    def beginnings(part):
        return {
            content["name"][:2]
            for kind in kinds
            for number, content in enumerate(kind.contents)
            if any(combinations(kind, number, part, openings))
        }

    patterns = json.loads((ROOT / "data/samples/conversations/zh.json").read_text(encoding="utf-8"))
    known = set(" ".join(patterns["words"]["doubled"]).split())
    held_out = beginnings("held_out") & known
    assert held_out
    assert held_out <= beginnings("train")


@OF_THE_SAME_CONTENTS
def test_a_first_name_that_is_a_known_word_is_said_as_a_name():
    """Else who introduces himself by it, as Tom of Tom Sawyer, is not understood."""
    common = (
        "alice amy andrew angela anna april ben bill bob carol charles chris daniel david don "
        "donald emily emma eric eve frank george grace hannah henry hope jack jacob james "
        "jane jennifer jim joan joe john jordan joseph joy june karen kate kevin laura lily "
        "linda lisa lucy maria marie mark mary matthew max may michael mike nancy nick olive "
        "oscar paul pearl peter rachel rose ruth sam sara sarah simon sofia sophie steven sue "
        "summer susan thomas tim tom violet will"
    )
    dialogues_with = collections.Counter(
        word
        for turns in dialogues("en", "train")
        for word in set(re.findall("[a-z]+", " ".join(turns).lower()))
    )
    known = {name for name in common.split() if dialogues_with[name] >= 3}
    introduced = {
        content["name"].lower()
        for kind in read_patterns("en").kinds
        if kind.name == "known words as names remembered in other words"
        for content in kind.contents
    }
    assert len(known) > 20
    assert known <= introduced


@OF_THE_SAME_CONTENTS
@EACH_LANGUAGE
def test_a_kind_that_holds_out_nothing_is_in_the_training_alone(language):
    kinds = {kind.name for kind in read_patterns(language).kinds if not kind.held_out}
    assert "topics it does not know" in kinds
    assert not kinds & {name for name, _ in labelled_dialogues(language, "held_out")}


@OF_THE_SAME_CONTENTS
@EACH_LANGUAGE
def test_known_words_are_in_three_dialogues_and_most_made_up_ones_are_not(language):
    """So a vocabulary can tell them apart by how many dialogues hold a word."""
    settings = TextSettings(language, split_counts=True)
    tokenizer = make_tokenizer(settings)

    @functools.cache
    def tokens(text):
        return tokenizer.tokenize(settings.normalise(text.lower()))

    names = {kind.name for kind in made_up_kinds(language)} | WITH_RARE_WORDS
    known, dialogues_with = set(), collections.Counter()
    for name, turns in labelled_dialogues(language, "train"):
        found = {token for turn in turns for token in tokens(turn)}
        dialogues_with.update(found)
        known |= found if name not in names else set()
    few = [token for token in known - JOINED if dialogues_with[token] < 3]
    assert len(few) < len(known) / 200
    words = made_up_words(language, but=OF_ANY_WORDS)
    rare = [word for word in words if all(dialogues_with[token] < 3 for token in tokens(word))]
    assert len(rare) > 2 / 3 * len(words)


def test_made_up_words_are_all_different_and_always_the_same():
    forms = [[["a", "b", "c"], ["x", "y"]], [["d", "e"], ["u", "v", "w"]]]
    words = [made_up_word(forms, number) for number in range(12)]
    assert len(set(words)) == 12
    assert words == [made_up_word(forms, number) for number in range(12)]
    assert set(words[::2]) == {"ax", "ay", "bx", "by", "cx", "cy"}
    with pytest.raises(ValueError, match="6 made-up words of this form"):
        made_up_word(forms, 12)


def test_alternatives_make_wordings():
    ways = {"ask": "what is|tell me"}
    assert wordings("(hi|hello) there(.|)", ways) == wordings("(hi|hello) there(.|)", {})
    assert {*wordings("(hi|hello) there(.|)", {})} == {
        "hi there.", "hi there", "hello there.", "hello there",
    }  # fmt: skip
    assert {*wordings("(@ask) {a}?", ways)} == {"what is {a}?", "tell me {a}?"}
    assert wordings(":( (sad) ?", ways) == [":( (sad) ?"]


@EACH_LANGUAGE
def test_no_alternatives_are_left_in_a_turn_and_none_is_empty(language):
    smileys = re.compile(r"[:;=]-?[()]")
    turns = {
        turn
        for kind in read_patterns(language).kinds
        for phrasing in kind.phrasings
        for turn in phrasing
    }
    assert not [turn for turn in turns if set("|@()") & set(smileys.sub("", turn))]
    assert all(turn.strip() for turn in turns)


def test_of_many_wordings_some_are_taken_from_all_over():
    letters = "|".join(chr(97 + number) for number in range(20))
    found = wordings(f"({letters})({letters})({letters})", {})
    assert len(set(found)) == len(found) == WORDINGS
    for place in range(3):
        assert len({one[place] for one in found}) > 15


def test_every_part_of_the_first_made_up_words_varies():
    """A chatbot that always sees the same endings learns them by heart instead of copying."""
    part = [chr(0x4E00 + number) for number in range(300)]
    words = [made_up_word([[part, part, part]], number) for number in range(200)]
    for place in range(3):
        assert len({word[place] for word in words}) > 100


def test_made_up_contents_take_turns_with_the_rows_of_a_table():
    forms = [[["a", "b"], ["x", "y"]]]
    found = made_up(forms, gaps="one two", first=0, count=2, table=[{"pet": "cat"}])
    assert [content["pet"] for content in found] == ["cat", "cat"]
    assert {content[gap] for content in found for gap in ("one", "two")} == {"ax", "ay", "bx", "by"}


@OF_THE_SAME_CONTENTS
@EACH_LANGUAGE
def test_some_questions_need_the_turns_before(language):
    last = {}
    for question, answer in pairs(language, "train"):
        last.setdefault(question[-1], set()).add(answer)
    assert sum(len(answers) > 1 for answers in last.values()) >= 50


@OF_THE_SAME_CONTENTS
def test_english_sums_are_right():
    check_sums("en", r"what is (\w+) plus (\w+)\?", lambda a, b: a + b)
    check_sums("en", r"what is (\w+) minus (\w+)\?", lambda a, b: a - b)
    check_sums("en", r"what is (\w+) times (\w+)\?", lambda a, b: a * b)
    check_sums("en", r"^([0-9]+) \+ ([0-9]+)$", lambda a, b: a + b)
    check_sums("en", r"what is ([0-9]+)-([0-9]+)\?", lambda a, b: a - b)
    check_sums("en", r"what is ([0-9]+) x ([0-9]+)\?", lambda a, b: a * b)
    check_sums("en", r"what is ([0-9]+) divided by ([0-9]+)\?", lambda a, b: a // b)


@OF_THE_SAME_CONTENTS
def test_chinese_sums_are_right():
    check_sums("zh", r"(\w+)加上(\w+)等于几？", lambda a, b: a + b)
    check_sums("zh", r"(\w+)减去(\w+)等于几？", lambda a, b: a - b)
    check_sums("zh", r"(\w+)乘以(\w+)等于几？", lambda a, b: a * b)
    check_sums("zh", r"^([0-9]+)\+([0-9]+)$", lambda a, b: a + b)
    check_sums("zh", r"^([0-9]+)-([0-9]+)等于几？", lambda a, b: a - b)
    check_sums("zh", r"^([0-9]+)×([0-9]+)等于多少？", lambda a, b: a * b)
    check_sums("zh", r"^([0-9]+)除以([0-9]+)等于几？", lambda a, b: a // b)


def check_sums(language, pattern, calculate):
    lists = read_patterns(language).words
    below = {"en": "That is less than zero", "zh": "比零小"}[language]
    found = 0
    for (*_, question), answer in pairs(language, "train"):
        match = re.search(pattern, question.lower())
        for numbers in (lists["numbers_to_100"], lists["digits"]):
            # Larger numbers are made up, and the answer is that they are too hard.
            is_refused = re.search("too hard|太难", answer)
            if match and {*match.groups()} <= {*numbers} and not is_refused:
                result = calculate(*map(numbers.index, match.groups()))
                words = re.sub("得数是|等于|得", "", answer).strip(string.punctuation + "。")
                assert words == (numbers[result] if result >= 0 else below), (question, answer)
                found += 1
    assert found > 50, pattern


@OF_THE_SAME_CONTENTS
@EACH_LANGUAGE
@pytest.mark.parametrize("part", ["train", "held_out"])
def test_some_dialogues_occur_again_with_unrelated_ones(language, part):
    labelled = labelled_dialogues(language, part)
    kinds = {kind.name: kind for kind in read_patterns(language).kinds}
    found = conversations(language, part)
    assert found[: len(labelled)] == [turns for _, turns in labelled]
    later = map(tuple, found[len(labelled) :])

    def of_kinds(is_meant):
        return [tuple(turns) for name, turns in labelled if is_meant(kinds[name])]

    again = of_kinds(lambda kind: not kind.alone and kind.uses != 1)
    unrelated = set(of_kinds(lambda kind: not (kind.alone or kind.uses or kind.telling)))
    alone = of_kinds(lambda kind: kind.alone)
    told = [turns for turns in of_kinds(lambda kind: kind.telling) if len(turns) > 2]
    known, telling, lonely = set(again), set(told), set(alone)

    def is_of_three(turns):
        return any(
            {turns[:first], turns[first:second], turns[second:]} <= known
            for first, second in itertools.combinations(range(2, len(turns), 2), 2)
        )

    def is_interrupted(turns, last):
        between = {turns[start : start + 2] for start in range(2, last, 2)}
        return between <= unrelated and turns[:2] + turns[last:] in telling

    for turns in itertools.islice(later, len(range(0, len(again) - 2, 20))):
        assert is_of_three(turns)
    for turns in itertools.islice(later, len(told[::3])):
        assert is_interrupted(turns, last=4)
    for turns in itertools.islice(later, len(told[1::6])):
        assert is_interrupted(turns, last=6)
    for turns in itertools.islice(later, len(told[2::6])):
        assert {turns[:2], turns[2:4]} <= unrelated
        assert turns[4:] in telling
    for turns in itertools.islice(later, len(alone)):
        assert turns[:2] in unrelated
        assert turns[2:] in lonely
    assert not list(later)


@pytest.mark.parametrize(
    ("language", "part", "message"), [("fr", "train", "'fr'"), ("en", "test", "'test'")]
)
def test_wrong_names_are_refused(language, part, message):
    with pytest.raises(ValueError, match=message):
        dialogues(language, part)


def test_the_nearest_part_is_suggested():
    with pytest.raises(ValueError, match=r"part must be one of train, held_out.* mean held_out\?"):
        dialogues("en", "heldout")
