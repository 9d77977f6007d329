"""One line says that a text's letters are not those of the language."""

import pytest

from towers.data.prepared.chunks import Chunk
from towers.data.prepared.filling import Letters

CHINESE, ENGLISH, RUSSIAN = (
    "今天天气真不错我们出去走走吧" * 9,
    "what a fine day " * 9,
    "привет " * 30,
)


def describe(text, language, encoding="utf-8"):
    letters = Letters()
    chunk = Chunk([text], [0])
    assert list(letters.of([chunk])) == [chunk]
    return letters.describe(language, encoding)


@pytest.mark.parametrize(
    "text, language, expected",
    [
        (CHINESE, "zh", ["letters: 100% Chinese"]),
        (ENGLISH, None, ["letters: 100% Latin"]),
        (CHINESE + ENGLISH, "zh", ["letters: 54% Chinese, 46% Latin"]),
        ("你好", "en", []),
    ],
)
def test_the_scripts_are_told_and_few_letters_tell_nothing(text, language, expected):
    assert describe(text, language) == expected


def test_a_misfit_names_the_shares_and_the_remedy():
    expected = "warning: the language is en, but the letters are 100% Chinese: give --language zh"
    assert describe(CHINESE, "en") == [expected]
    assert "give --language en" in describe(ENGLISH, "zh")[0]
    assert "100% Cyrillic: " in describe(RUSSIAN, "en")[0]
    assert "--set tokenizer=characters" in describe(RUSSIAN, "en")[0]


def test_another_encoding_is_likely_only_where_the_bytes_do_not_tell_it():
    for encoding in ("utf-8", "UTF-8-sig", "utf-16-le"):
        assert "encoding" not in describe(RUSSIAN, "en", encoding)[0]
    assert "another one than cp1251 (--encoding)" in describe(RUSSIAN, "en", "cp1251")[0]
