"""Normalisation gives one spelling, once and for all, to any string."""
# ruff: noqa: RUF001 - full-width punctuation and odd quotes are what is tested.

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towers.data.text import TextSettings, make_tokenizer
from towers.data.text.normalisation import is_wide, normalise

# What the rules are about, so that they meet each other often; then any character at all.
AWKWARD = st.text(
    "aS1 .。…,，:：;?!()（）-—–―/'\"“”’`´中か、《》【】〔\u0301\u3099\u200b\u3000\ufeff"
    "\ufffd\x00\x85"
    "\u1100\u1161Ａ７．－＇～\ud800\U0001f600\u00e9"
)
ANY_TEXT = AWKWARD | st.text(st.characters()) | st.text(st.characters(categories=None))


@given(ANY_TEXT, st.sampled_from(["zh", "en"]), st.booleans(), st.booleans())
def test_normalising_twice_changes_nothing(text, language, keep_blanks, keep_marks):
    options = {"keep_blanks": keep_blanks, "keep_marks": keep_marks}
    once = normalise(text, language, **options)
    assert normalise(once, language, **options) == once


@given(ANY_TEXT, st.sampled_from(["zh", "en"]))
def test_nothing_unseen_or_unencodable_is_left(text, language):
    normal = normalise(text, language)
    assert normal.encode("utf-8").decode("utf-8") == normal
    assert not set(normal) & set("\x00\n\r\t\x85\u2028\u3000\u200b\ufeff\ufffd“”")
    assert "  " not in normal and normal == normal.strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ＡＢＣ　１２３", "ABC 123"),
        ("你好 ， 世界 !", "你好，世界！"),
        ("真的吗?(不会吧)", "真的吗？（不会吧）"),
        ("我 不 知道", "我不知道"),
        ("我用 Python 写", "我用 Python 写"),
        ("他说“好”,『走』", '他说"好"，"走"'),
        ("等等... 再说。。。", "等等…再说…"),
        ("走吧.", "走吧。"),
        ("圆周率是3.14.", "圆周率是3.14."),
        ("１,０００元,７:３０见", "1,000元，7:30见"),
        ("时间:早上", "时间：早上"),
        ("看http://a.cn", "看http://a.cn"),
        ("别——别走", "别—别走"),
        ("别--别走", "别—别走"),
        ("\ufeff你\u200b好\x00吗\ufffd？", "你好吗？"),
        ("一\r\n二\u2028三\x85A\u00a0B", "一二三 A B"),
        ("\ud83d你好\udc00", "你好"),
    ],
)
def test_chinese_has_one_spelling(text, expected):
    assert normalise(text, "zh") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("“Don’t”，she said。", '"Don\'t",she said.'),
        ("well… maybe . . .", "well... maybe ..."),
        ("wait—what -- no", "wait - what - no"),
        ("a\tb\n\nc  d\x85e", "a b c d e"),
        ("soft\u00adhyphen zero\u200bwidth", "softhyphen zerowidth"),
        ("cafe\u0301", "caf\u00e9"),
        ("x\u0323\u20dd", "x"),
        ("it ' s fine", "it 's fine"),
        ("pages 3–4", "pages 3-4"),
        ("我 们", "我 们"),
    ],
)
def test_english_has_one_spelling(text, expected):
    assert normalise(text, "en") == expected


def test_blanks_that_part_tokens_can_be_kept():
    assert normalise("我　不 知道 ？", "zh", keep_blanks=True) == "我 不 知道 ？"


def test_other_language_is_refused():
    with pytest.raises(ValueError, match=r"language must be one of zh, en. Received 'fr'"):
        normalise("bonjour", "fr")


def test_chinese_and_its_punctuation_are_wide():
    assert all(map(is_wide, "中々か，。…—\U00020000"))
    assert not any(map(is_wide, "aé1.-'\" "))


@pytest.mark.parametrize(
    "text",
    [
        *("नमस्ते दुनिया", "می\u200cخواهم", "สวัสดีครับ", "שָׁלוֹם", "ọ̀rọ̀", "за́мок"),
        *("\ua807\ua823", "\ua882\ua8b5", "\U00011107\U00011127", "\U0001e900\U0001e944"),
    ],
)
def test_signs_of_scripts_that_have_them_stay_where_they_are_kept(text):
    text = unicodedata.normalize("NFC", text)
    kept = normalise(text, "en", keep_marks=True)
    assert kept == text == normalise(kept, "en", keep_marks=True)
    assert normalise(text, "en") != text
    for settings in (TextSettings("en", marks=True), TextSettings("zh", marks=True)):
        tokenizer = make_tokenizer(settings)
        tokens = tokenizer.tokenize(settings.normalise(text))
        assert tokens == text.split() and tokenizer.detokenise(tokens) == text
    assert normalise("e\u0301 x\u200dy \ufe0f", "en", keep_marks=True) == "é xy"
