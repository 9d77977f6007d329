"""Made-up names, pets' names and numbers that no training dialogue holds, with talks about them.

The training dialogues have made-up words too, from other syllables and characters, or in other
combinations. `first_messages_test.py` holds that none of these 200 words occurs there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

# Kind: (how many, what is said, what is asked). Each word is used in one talk.
_TALKS = {
    "en": {
        "names": (
            100,
            ["My name is {}.", "my name is {}", "I am {}.", "Hello, my name is {}.", "call me {}"],
            ["What is my name?", "who am I?", "what is my name", "Tell me my name."],
        ),
        "pets' names": (
            50,
            ["My dog is called {}.", "I have a cat called {}.", "my cat's name is {}"],
            ["What is its name?", "what is my pet called?"],
        ),
        "numbers": (
            50,
            ["My favourite number is {}.", "Remember {}.", "please remember the number {}"],
            ["What is my number?", "what did I tell you?"],
        ),
    },
    "zh": {
        "names": (
            100,
            ["我叫{}。", "我叫{}", "我是{}。", "你好，我叫{}。", "叫我{}吧"],
            ["我叫什么名字？", "我是谁？", "我叫什么", "请说我的名字。"],
        ),
        "pets' names": (
            50,
            ["我的狗叫{}。", "我有一只猫叫{}。", "我的猫名字是{}"],
            ["它叫什么名字？", "我的宠物叫什么？"],
        ),
        "numbers": (
            50,
            ["我最喜欢的数字是{}。", "请记住{}。", "请记住数字{}"],
            ["我的数字是多少？", "我让你记住什么？"],
        ),
    },
}
_BEGINNINGS = ["quim", "brax", "thel", "vosk", "glin", "drup", "chav", "fenk", "jost", "wrel"]
_ENDINGS = ["dorp", "ulf", "eska", "ivo", "ambu", "oth", "yndra", "ekk", "orvi", "ash"]
_CHINESE_BEGINNINGS = [
    "欧阳炫",
    "司徒",
    "上官",
    "诸葛",
    "慕容",
    "皇甫",
    "尉迟",
    "端木",
    "夏侯",
    "令狐",
]
_CHINESE_ENDINGS = ["翀", "霄汉", "峤", "昉", "祎宸", "骞", "珩", "黎昕", "旻", "煊赫"]
_PETS = [
    "旋风腿",
    "呼噜噜",
    "嘟比",
    "咕咚",
    "闪闪猫",
    "跳跳虎",
    "泡芙圈",
    "麻薯团",
    "糯糯球",
    "汤圆宝",
]


def repetitions(language: str) -> Iterator[tuple[str, str, tuple[str, str]]]:
    """Yields (kind, made-up word, what is said in turn); each word once."""
    words = {"names": names(language), "pets' names": pets(language), "numbers": numbers()}
    for kind, (count, told, asked) in _TALKS[language].items():
        ways = itertools.cycle(itertools.product(told, asked))
        for word, (tell, ask) in itertools.islice(zip(words[kind], ways, strict=False), count):
            yield kind, word, (tell.format(word), ask)


def names(language: str) -> list[str]:
    """Returns 100 names."""
    if language == "zh":
        return _join(_CHINESE_BEGINNINGS, _CHINESE_ENDINGS)
    return [name.capitalize() for name in _join(_BEGINNINGS, _ENDINGS)]


def pets(language: str) -> list[str]:
    """Returns 50 or more names for pets."""
    if language == "zh":
        return _join(_PETS, ["", "仔", "丸", "酱", "妞"])
    return [name.capitalize() for name in _join(_BEGINNINGS[::2], [f"{e}by" for e in _ENDINGS])]


def numbers() -> list[str]:
    """Returns 50 numbers of five digits."""
    return [str(10_007 + 1_699 * index) for index in range(50)]


def _join(beginnings: list[str], endings: list[str]) -> list[str]:
    return [first + last for first, last in itertools.product(beginnings, endings)]
