"""One line says that a text's letters are not those of the language."""

import pytest

from towers.data.prepared.chunks import Chunk
from towers.data.prepared.filling import Letters

CHINESE, ENGLISH, RUSSIAN = (
    "今天天气真不错我们出去走走吧" * 9,
    "what a fine day " * 9,
    "привет " * 30,
)


def misfit(text, language):
    letters = Letters()
    chunk = Chunk([text], [0])
    assert list(letters.of([chunk])) == [chunk]
    return letters.misfit(language)


@pytest.mark.parametrize(
    "text, language", [(CHINESE, "zh"), (ENGLISH, "en"), (CHINESE + ENGLISH, "zh"), ("你好", "en")]
)
def test_letters_that_fit_or_are_few_give_no_line(text, language):
    assert misfit(text, language) is None


def test_a_misfit_names_the_shares_and_the_remedy():
    expected = "the language is en, but 100% of the letters are Chinese and 0% Latin: give "
    assert expected + "--language zh" in misfit(CHINESE, "en")
    assert "give --language en" in misfit(ENGLISH, "zh")
    assert "--set tokenizer=characters" in misfit(RUSSIAN, "en")
