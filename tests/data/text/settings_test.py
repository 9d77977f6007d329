"""Settings are plain values, and what cannot work is refused at once."""

import json
import pickle

import pytest

from towers.data.text.settings import TextSettings


@pytest.mark.parametrize(("language", "expected"), [("zh", "jieba"), ("en", "words")])
def test_auto_follows_the_language(language, expected):
    assert TextSettings(language).chosen_tokenizer == expected
    assert TextSettings(language, "characters").chosen_tokenizer == "characters"


def test_settings_travel_as_plain_values():
    settings = TextSettings("en", "subwords", lowercase=True, subword_model="a.model", marks=True)
    assert TextSettings(**json.loads(json.dumps(settings.as_dict()))) == settings
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_blanks_are_kept_only_where_they_part_tokens():
    assert TextSettings("zh", "spaces").normalise("我 很") == "我 很"
    assert TextSettings("zh").normalise("我 很") == "我很"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"language": "de"}, "language must be one of zh, en. Received 'de'"),
        ({"tokenizer": "nltk"}, "tokenizer must be one of auto, jieba, .*Received 'nltk'"),
        ({"language": "en", "user_dictionary": "a.txt"}, "only used by the tokenizer jieba"),
        ({"subword_model": "a.model"}, "only used by the tokenizer subwords"),
        ({"as_written": True}, "choose tokenizer='spaces', or spelled=True"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        TextSettings(**wrong)
