"""The embedded stories: the same each time, no story twice, with things to remember."""

import hashlib

import pytest

from towers.data.samples import stories


def stories_of(part):
    lines = stories.text(part).splitlines()
    length = len(stories.SENTENCES)
    return ["\n".join(lines[start : start + length]) for start in range(0, len(lines), length)]


def test_parts_are_as_large_as_they_say_and_share_no_story():
    parts = {part: stories_of(part) for part in stories.PARTS}
    assert {part: len(own) for part, own in parts.items()} == {
        part: number for part, (number, _) in stories.PARTS.items()
    }
    assert len(set().union(*parts.values())) == sum(map(len, parts.values()))


def test_the_text_is_the_same_in_every_version():
    digest = hashlib.sha256("".join(map(stories.text, stories.PARTS)).encode()).hexdigest()
    assert digest[:16] == "72b9e70f5ca4cc5b"


def test_every_word_of_the_other_parts_is_known_from_the_training():
    words = {part: set(stories.text(part).split()) for part in stories.PARTS}
    assert words["validation"] | words["test"] <= words["train"]
    assert 80 < len(words["train"]) < 120


def test_the_hero_and_the_thing_come_back():
    for story in stories_of("test"):
        first, *_, last_but_one, _ = story.splitlines()
        remembered = {name for name in (*stories.GIRLS, *stories.BOYS) if name in first.split()}
        assert len(remembered) == 1 and remembered <= set(last_but_one.split())
        things = set(stories.THINGS) & set(story.replace('"', "").split())
        assert len(things) == 1


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match=r"train, validation, test. Received 'dev'"):
        stories.text("dev")


def test_the_nearest_part_is_suggested():
    with pytest.raises(ValueError, match=r"one of train, validation, .* mean validation\?"):
        stories.text("validate")
