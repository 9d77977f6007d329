"""Tokenizers cut as people would, and what they join is cut and joined to the same again."""
# ruff: noqa: RUF001 - full-width punctuation is part of Chinese.

import itertools
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.paths import ROOT
from towers.data.text.settings import TextSettings
from towers.data.text.subwords import train_subwords
from towers.data.text.tokenizers import make_tokenizer, unmatched_words

CHINESE = TextSettings("zh")
ENGLISH = TextSettings("en")
SENTENCES = ["今天天气真好", "我们一起去吃饭吧", "你最近在忙什么呢", "我在看一本新书"]
PIECES = """
    中文 我们 T恤 hello don't s ' " 's n't 3.5 1 - -- , . ... 。 ， ： : / ( ) $ % U.S. _ & é か
    http://a.b ~ # OK Ａ x\u0301
"""


@st.composite
def texts(draw):
    """Returns pieces that the rules are about, some with a blank after them."""
    pieces = draw(st.lists(st.sampled_from(PIECES.split())))
    return "".join(piece + draw(st.sampled_from(["", " "])) for piece in pieces)


@pytest.fixture(scope="module")
def subword_settings(tmp_path_factory):
    path = tmp_path_factory.mktemp("subwords") / "subwords.model"
    train_subwords(SENTENCES * 5, 60, path)
    return TextSettings("zh", "subwords", subword_model=str(path))


SETTINGS = [
    CHINESE,
    ENGLISH,
    TextSettings("zh", split_counts=True),
    TextSettings("en", lowercase=True),
    TextSettings("zh", "characters"),
    TextSettings("en", "characters"),
    TextSettings("zh", "spaces"),
    TextSettings("en", marks=True),
]


def check_round_trip(settings, tokenizer, text):
    tokens = tokenizer.tokenize(settings.normalise(text))
    assert all(tokens)
    once = tokenizer.detokenise(tokens)
    assert tokenizer.detokenise(tokenizer.tokenize(settings.normalise(once))) == once


@example(ENGLISH, "http://a.b /中文")
@given(st.sampled_from(SETTINGS), texts() | st.text())
def test_joined_tokens_are_cut_and_joined_to_the_same(settings, text):
    check_round_trip(settings, make_tokenizer(settings), text)


@given(st.sampled_from(SETTINGS), texts() | st.text())
def test_no_character_is_lost_or_added(settings, text):
    tokenizer, normal = make_tokenizer(settings), settings.normalise(text)
    assert "".join(tokenizer.tokenize(normal)).replace(" ", "") == normal.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("我们一起去吃饭吧!", ["我们", "一起", "去", "吃饭", "吧", "！"]),
        ("这件T恤don't适合café", ["这件", "T恤", "don't", "适合", "café"]),
        ("３.５公里,C4炸药", ["3.5", "公里", "，", "C4", "炸药"]),
        ("走了3.5公里用WIFI", ["走", "了", "3.5", "公里", "用", "WIFI"]),
        ("Hello world你好", ["Hello", "world", "你好"]),
    ],
)
def test_jieba_cuts_chinese_into_words(text, tokens):
    assert make_tokenizer(CHINESE).tokenize(CHINESE.normalise(text)) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("I don't know, uh-huh.", ["I", "don't", "know", ",", "uh-huh", "."]),
        ("It costs $1,000 at 7:30!", ["It", "costs", "$", "1,000", "at", "7:30", "!"]),
        ("The U.S. (north) 50%", ["The", "U.S.", "(", "north", ")", "50", "%"]),
        ("get 'em... www.a.org", ["get", "'em", "...", "www.a.org"]),
        ("I like 北京", ["I", "like", "北", "京"]),
    ],
)
def test_words_are_cut_from_their_punctuation(text, tokens):
    assert make_tokenizer(ENGLISH).tokenize(ENGLISH.normalise(text)) == tokens


@pytest.mark.parametrize(
    "text",
    [
        "Well, \"of course\" he said; it's the dogs' tails...",
        "I don't (really) know: $5.50 is 50%, or 1/2!",
        "'hello' she said - and/or not. Do 'em in the U.S. at 7:30.",
        "I like 北京 very much.",
    ],
)
def test_english_is_joined_as_it_was_written(text):
    tokenizer = make_tokenizer(ENGLISH)
    assert tokenizer.detokenise(tokenizer.tokenize(text)) == text


def test_treebank_tokens_are_joined_as_english():
    tokenizer = make_tokenizer(TextSettings("en", "spaces"))
    tokens = tokenizer.tokenize("I do n't think it 's true , do you ?")
    assert tokenizer.detokenise(tokens) == "I don't think it's true, do you?"


def test_chinese_is_joined_without_blanks():
    tokenizer = make_tokenizer(CHINESE)
    assert (
        tokenizer.detokenise(["我", "用", "Hello", "World", "，", "3", "次"])
        == "我用Hello World，3次"
    )


def test_parted_text_keeps_its_tokens():
    settings = TextSettings("zh", "spaces")
    tokenizer = make_tokenizer(settings)
    tokens = tokenizer.tokenize(settings.normalise("我　很 难过 ？"))
    assert tokens == ["我", "很", "难过", "？"]
    assert tokenizer.detokenise(tokens) == "我很难过？"


def test_lower_case_is_asked_for():
    settings = TextSettings("en", lowercase=True)
    assert make_tokenizer(settings).tokenize(settings.normalise("I AM ＯＫ")) == ["i", "am", "ok"]


def test_a_number_and_its_measure_word_are_two_tokens():
    teens = [f"十{one}" for one in "一二三四五六七八九"]
    numbers = [*"一二三四五六七八九十两", *teens, "二十", "三十五", "一百"]
    split = make_tokenizer(TextSettings("zh", split_counts=True))
    whole = make_tokenizer(CHINESE)
    joined = 0
    for number, measure in itertools.product(numbers, "个只支条张块辆位朵棵盒瓶杯页米天站圈层斤岁"):
        for text in (
            f"我有{number}{measure}",
            f"{number}{measure}，一共几个",
            f"{number}{measure}东西",
        ):
            assert number in split.tokenize(text), text
            joined += number not in whole.tokenize(text)
    assert joined > 500
    assert split.tokenize("五辆车八块钱两本书") == ["五", "辆车", "八", "块钱", "两", "本书"]
    for word in ("一起", "十分", "三轮车", "三年级", "五台山", "一共", "四川", "五月"):
        assert split.tokenize(word) == [word]


def test_words_of_the_users_stay_when_counts_are_split(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("三只松鼠 1000\n", encoding="utf-8")
    settings = TextSettings(user_dictionary=str(path), split_counts=True)
    assert make_tokenizer(settings).tokenize("三只松鼠有两只") == ["三只松鼠", "有", "两", "只"]


def test_user_dictionary_adds_words(tmp_path):
    text = "石墨烯太极云是什么"
    path = tmp_path / "words.txt"
    path.write_text("石墨烯太极云 20000 n\n", encoding="utf-8")
    settings = TextSettings(user_dictionary=str(path))
    assert "石墨烯太极云" not in make_tokenizer(CHINESE).tokenize(text)
    assert "石墨烯太极云" in make_tokenizer(settings).tokenize(text)


def test_dictionary_replaces_that_of_jieba(tmp_path):
    path = tmp_path / "dictionary.txt"
    path.write_text("天天 1000 n\n今天 10 n\n今 10 n\n", encoding="utf-8")
    tokens = make_tokenizer(TextSettings(dictionary=str(path))).tokenize("今天天气")
    assert tokens[:2] == ["今", "天天"]


@pytest.mark.parametrize("name", ["dictionary", "user_dictionary"])
def test_wrong_dictionary_is_named(tmp_path, name):
    path = tmp_path / "words.txt"
    path.write_bytes(b"\xff\xfe\x00\xd8")
    for wrong in [path, tmp_path / "missing.txt", tmp_path]:
        with pytest.raises(ValueError, match=rf"{wrong}: expected {name} to be a UTF-8 file"):
            make_tokenizer(TextSettings(**{name: str(wrong)}))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", "no words"),
        ("你好\n", "Line 1: 你好"),
        ("你好 3\n\n", "Line 2"),
        ("你好 many\n", "Line 1: 你好 many"),
        ("你好 9\n我们 -3\n", "negative counts"),
    ],
)
def test_dictionary_of_another_form_is_refused(tmp_path, content, found):
    path = tmp_path / "words.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"words.txt: expected dictionary .*{found}"):
        make_tokenizer(TextSettings(dictionary=str(path)))


def test_jieba_prints_and_writes_nothing(tmp_path):
    code = (
        "from towers.data.text import TextSettings, make_tokenizer;"
        "print(len(make_tokenizer(TextSettings('zh')).tokenize('我们一起去吃饭吧')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"TMPDIR": str(tmp_path), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("5\n", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("lowercase", [False, True])
def test_words_of_a_dictionary_are_one_token_whatever_their_characters(tmp_path, lowercase):
    words = ["抗原19-9", "*ST船", "Trust 认证", "C++", "Ab超", "node.js"]
    content = "".join(f"{word} 9999\n" for word in words)
    (tmp_path / "words.txt").write_bytes(b"\xef\xbb\xbf" + content.encode())
    path = str(tmp_path / "words.txt")
    settings = TextSettings(lowercase=lowercase, user_dictionary=path)
    tokenizer = make_tokenizer(settings)
    for word in words:
        normal = settings.normalise(word)
        assert normal in tokenizer.tokenize(settings.normalise(f"你会{word}吗"))
    (tmp_path / "one.txt").write_bytes(b"\xef\xbb\xbf\xe4\xbd\xa0\xe5\xa5\xbd 9\n")
    own = make_tokenizer(TextSettings(dictionary=str(tmp_path / "one.txt")))
    assert own.tokenize("你好") == ["你好"]


def test_a_latin_word_is_not_cut():
    assert "pythonthing" in make_tokenizer(TextSettings()).tokenize("写pythonthing代码")


def test_words_that_no_text_can_give_are_named_and_others_match(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("二〇二六\n㐂寿司 9\nmachine learning\n石墨烯 n\n\u200b 9\n的了 1\n", "utf-8")
    settings = TextSettings(user_dictionary=str(path))
    tokens = make_tokenizer(settings).tokenize("在二〇二六吃㐂寿司学machine learning和石墨烯")
    assert {"二〇二六", "㐂寿司", "machine learning", "石墨烯"} <= set(tokens)
    assert unmatched_words(settings) == ["\u200b", "的了"]
