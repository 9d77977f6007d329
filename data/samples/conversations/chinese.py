"""The Chinese dialogues."""

from __future__ import annotations

import towers.data.samples.conversations.chinese_words as table
from towers.data.samples.conversations.kinds import (
    Kind,
    both_ways,
    comparisons,
    differences,
    neighbours,
    sums,
)

OPENINGS = ("", "打扰一下。", "我有一个问题。", "听我说。", "下一个。")


def kinds() -> list[Kind]:
    """Returns every kind of dialogue."""
    return [*arithmetic(), *calendar(), *words(), *world(), *animals(), *people(), *pets()]


def arithmetic() -> list[Kind]:
    """Returns the kinds that deal with numbers."""
    pairs = comparisons(table.NUMBERS, 10)
    return [
        Kind(
            "sums",
            [
                ("{a} 加上 {b} 等于几？", "得数是 {c}。"),
                ("请问 {a} 加上 {b} 是多少？", "一共是 {c}。"),
                ("把 {a} 和 {b} 相加。", "结果是 {c}。"),
                ("你会算 {a} 加上 {b} 吗？", "会，是 {c}。"),
                ("苹果的数目是 {a}，又多了 {b}。", "那么数目变成 {c}。"),
                ("先算 {a} 加上 {b} 吧。", "得 {c}。", "再加一呢？", "得 {d}。"),
                ("先写 {a}，再加上 {b}。", "现在是 {c}。", "还要加二。", "现在是 {e}。"),
            ],
            sums(table.NUMBERS, 9),
        ),
        Kind(
            "differences",
            [
                ("{a} 减去 {b} 等于几？", "得数是 {c}。"),
                ("从 {a} 里面拿走 {b}。", "还剩 {c}。"),
                ("请问 {a} 减去 {b} 是多少？", "答案是 {c}。"),
                ("钱数是 {a}，花掉了 {b}。", "钱数变成 {c}。"),
                ("你会算 {a} 减 {b} 吗？", "会，得 {c}。"),
                ("{a} 跟 {b} 差几？", "差 {c}。"),
                ("鸟的数目是 {a}，飞走了 {b}。", "鸟的数目变成 {c}。"),
            ],
            differences(table.NUMBERS, 10),
        ),
        Kind(
            "larger",
            [
                ("{a} 和 {b} 哪个大？", "大的是 {larger}。"),
                ("请说出 {a} 与 {b} 里面大的数。", "是 {larger}。"),
                ("{a} 跟 {b} 的最大值是什么？", "最大值是 {larger}。"),
                ("在 {a} 和 {b} 中间选大的。", "我选 {larger}。"),
            ],
            pairs,
        ),
        Kind(
            "smaller",
            [
                ("{a} 和 {b} 哪个小？", "小的是 {smaller}。"),
                ("请说出 {a} 与 {b} 里面小的数。", "是 {smaller}。"),
                ("{a} 跟 {b} 的最小值是什么？", "最小值是 {smaller}。"),
                ("在 {a} 和 {b} 中间选小的。", "我选 {smaller}。"),
            ],
            pairs,
        ),
    ]


def calendar() -> list[Kind]:
    """Returns the kinds that deal with what follows in a row: days, months and numbers."""
    after: list[tuple[str, ...]] = [
        ("{x} 的后面是什么？", "是 {after}。"),
        ("请说 {x} 的下一个。", "下一个是 {after}。"),
        ("你知道 {x} 之后是什么吗？", "知道，{after}。"),
        ("{x} 完了就是什么？", "就是 {after}。"),
        ("哪一个跟着 {x}？", "跟着的是 {after}。"),
        ("从 {x} 往下数。", "{after}。", "然后呢？", "{later}。"),
    ]
    before: list[tuple[str, ...]] = [
        ("{x} 的前面是什么？", "是 {before}。"),
        ("请说 {x} 的上一个。", "上一个是 {before}。"),
        ("你知道 {x} 之前是什么吗？", "知道，{before}。"),
        ("什么过了才是 {x}？", "过了 {before}。"),
        ("从 {x} 退回一个。", "回到了 {before}。"),
    ]
    today: list[tuple[str, ...]] = [
        ("今天是 {x}，明天呢？", "明天是 {after}。"),
        ("如果今天是 {x}，明天是星期几？", "那么明天是 {after}。"),
    ]
    rows_of = {"day": table.DAYS, "month": table.MONTHS, "number": table.NUMBERS}
    return [
        Kind(f"{direction} a {name}", phrasings, neighbours(row, name != "number"))
        for name, row in rows_of.items()
        for direction, phrasings in {
            "after": after + today if name == "day" else after,
            "before": before,
        }.items()
    ]


def words() -> list[Kind]:
    """Returns the kinds that deal with words."""
    return [
        Kind(
            "opposites",
            [
                ("{a} 的反义词是什么？", "{b}。"),
                ("请告诉我 {a} 的反义词。", "反义词是 {b}。"),
                ("什么和 {a} 相反？", "和它相反的是 {b}。"),
                ("不说 {a}，应该说什么？", "应该说 {b}。"),
                ("我写了 {a} 这个词。", "我写了 {b} 这个词。"),
                ("我说 {a}，你说什么？", "我说 {b}。"),
            ],
            both_ways(table.OPPOSITES),
        ),
        Kind(
            "measures",
            [
                ("{thing} 的量词是哪个？", "用 {measure}。"),
                ("一什么 {thing}？", "{measure}。"),
                ("请问 {thing} 的量词是什么？", "量词是 {measure}。"),
                ("{thing} 要怎么数？", "数的时候用 {measure}。"),
                ("我忘了 {thing} 的量词。", "别忘了 {measure}！"),
                ("在 {thing} 之前写哪个字？", "答案是 {measure}。"),
            ],
            table.MEASURES,
        ),
        Kind(
            "repeating",
            [
                ("请说 {word}。", "{word}。"),
                ("请说两遍 {word}。", "{word}，{word}。"),
                ("请说三遍 {word}。", "{word}，{word}，{word}。"),
                ("跟我念：{word}。", "我念了 {word}。"),
                ("你会写 {word} 吗？", "当然会：{word}。"),
                ("我在想 {word} 这个词。", "我也在想 {word}。"),
                ("请记住 {word}。", "我记住 {word} 了。"),
                ("别再说 {word} 了。", "好，我不说 {word} 了。"),
            ],
            [{"word": word} for word in table.WORDS],
        ),
    ]


def world() -> list[Kind]:
    """Returns the kinds that deal with places, things and work."""
    return [
        Kind(
            "capitals",
            [
                ("{country} 的首都是哪里？", "是 {capital}。"),
                ("你知道 {country} 的首都吗？", "知道，是 {capital}。"),
                ("我要去 {country} 旅行。", "别忘了看看 {capital}！"),
                ("请在地图上找 {country} 的首都。", "找到了，{capital}。"),
                ("{country} 的国王住在哪里？", "应该住在 {capital}。"),
                ("请说出 {country} 的首都。", "{country} 的首都是 {capital}。"),
            ],
            table.CAPITALS,
        ),
        Kind(
            "countries",
            [
                ("{capital} 是哪个国家的首都？", "是 {country} 的首都。"),
                ("我住在 {capital}。", "那么你住在 {country}。"),
                ("飞机到了 {capital}。", "欢迎来到 {country}！"),
                ("{capital} 在哪个国家？", "在 {country}。"),
                ("她生在 {capital}。", "那么她来自 {country}。"),
                ("从 {capital} 来的人是哪国人？", "来自 {country}。"),
            ],
            table.CAPITALS,
        ),
        Kind(
            "colours",
            [
                ("{thing} 是什么颜色的？", "是 {colour} 的。"),
                ("请描述一下 {thing}。", "它是 {colour} 的。"),
                ("{thing} 是粉色的吗？", "不，{thing} 是 {colour} 的。"),
                ("我想画 {thing}。", "你需要 {colour} 的颜料。"),
                ("说到 {thing} 你想到什么颜色？", "我想到 {colour}。"),
                ("我梦见了 {thing}。", "是 {colour} 的吗？"),
                ("请说出 {thing} 的颜色。", "颜色是 {colour}。"),
            ],
            table.COLOURS,
        ),
        Kind(
            "work",
            [
                ("{job} 做什么工作？", "{job} {work}。"),
                ("我叔叔是 {job}。", "原来他 {work}。"),
                ("我姐姐当了 {job}。", "原来她 {work}。"),
                ("{job} 每天忙什么？", "每天 {work}。"),
                ("我想当 {job}。", "那么你要 {work}。"),
                ("{job} 靠什么生活？", "靠 {work} 生活。"),
            ],
            table.JOBS,
        ),
        Kind(
            "workplaces",
            [
                ("{job} 在哪里上班？", "在 {place}。"),
                ("我认识一位 {job}。", "你们是在 {place} 认识的吗？"),
                ("去哪里找 {job}？", "去 {place} 找。"),
                ("{job} 迟到了。", "大家在 {place} 等着。"),
                ("我想见 {job}。", "请到 {place} 去。"),
                ("{job} 不在家。", "也许在 {place}。"),
            ],
            table.JOBS,
        ),
        Kind(
            "workers",
            [
                ("谁在 {place} 上班？", "{job} 在那里上班。"),
                ("我在 {place} 上班。", "你是 {job} 吗？"),
                ("在 {place} 会遇见谁？", "会遇见 {job}。"),
                ("有人从 {place} 打来电话。", "可能是 {job}。"),
                ("{place} 需要帮手。", "需要 {job}。"),
            ],
            table.JOBS,
        ),
    ]


def animals() -> list[Kind]:
    """Returns the kinds that deal with animals."""
    return [
        Kind(
            "sounds",
            [
                ("{animal} 怎么叫？", "它的叫声是 {sound}。"),
                ("看，一只 {animal}！", "我听见了：{sound}。"),
                ("{animal} 的叫声是什么？", "叫声是 {sound}。"),
                ("你会学 {animal} 叫吗？", "会：{sound}，{sound}！"),
                ("{animal} 张开了嘴。", "{sound}！"),
            ],
            table.ANIMALS,
        ),
        Kind(
            "voices",
            [
                ("我听见 {sound} 的声音。", "那是 {animal}。"),
                ("谁的叫声是 {sound}？", "{animal} 这样叫。"),
                ("外面在响：{sound}。", "一定是 {animal}。"),
                ("哪种动物发出 {sound} 的声音？", "是 {animal}。"),
                ("{sound}，{sound}！", "你好，{animal}。"),
            ],
            table.ANIMALS,
        ),
        Kind(
            "homes",
            [
                ("{animal} 住在哪里？", "住在 {home}。"),
                ("{animal} 在哪里睡觉？", "它在 {home} 睡觉。"),
                ("我找不到 {animal} 了。", "你看过 {home} 吗？"),
                ("{animal} 累了。", "让它回 {home} 吧。"),
                ("请问 {animal} 的家是哪里？", "它的家是 {home}。"),
            ],
            table.ANIMALS,
        ),
        Kind(
            "food",
            [
                ("{animal} 喜欢吃什么？", "它喜欢吃 {food}。"),
                ("{animal} 饿了。", "给它一点 {food} 吧。"),
                ("请问 {animal} 喂什么？", "拿 {food} 喂它。"),
                ("{animal} 最爱什么？", "最爱 {food}。"),
                ("我要给 {animal} 买吃的。", "买 {food} 吧。"),
            ],
            table.ANIMALS,
        ),
    ]


def people() -> list[Kind]:
    """Returns the kinds in which people talk about themselves."""
    return [
        Kind(
            "greetings",
            [
                ("你好，我叫 {name}。", "你好，{name}，很高兴认识你。"),
                ("嗨，我是 {name}。", "嗨，{name}，你好吗？"),
                ("早上好，这里是 {name}。", "早上好，{name}！"),
                ("这是我的朋友 {name}。", "欢迎你，{name}。"),
                ("{name} 要走了。", "再见，{name}，下次再来。"),
                ("请给 {name} 打电话。", "我正在给 {name} 打电话。"),
                ("我的名字是 {name}，别忘了。", "不会忘的。", "那么我是谁？", "你是 {name}。"),
            ],
            [{"name": name} for name in table.NAMES],
        ),
        Kind(
            "small talk",
            [
                ("你好吗？", "我很好，谢谢。"),
                ("你叫什么名字？", "我是一个小小的聊天机器人。"),
                ("谁教你说话的？", "我是在塔上训练出来的。"),
                ("谢谢你。", "不客气。"),
                ("晚安。", "祝你睡个好觉！"),
                ("我累了。", "那就休息一会儿吧。"),
                ("我饿了。", "我们去吃点东西吧。"),
                ("讲个笑话吧。", "我只会算数和聊动物。"),
                ("你会做什么？", "我会加减、数数，还会聊几句。"),
                ("再见。", "再见，下次再聊。"),
            ],
            [{}],
            held_out=False,
        ),
    ]


def pets() -> list[Kind]:
    """Returns the kind whose second question needs the first."""
    return [
        Kind(
            "pets",
            [
                (
                    "我的 {animal} 叫 {name}。",
                    "{name} 这个名字很好听。",
                    "它怎么叫？",
                    "它的叫声是 {sound}。",
                ),
                (
                    "{name} 是我养的 {animal}。",
                    "你好，{name}！",
                    "谁是 {name}？",
                    "{name} 是你养的 {animal}。",
                ),
                (
                    "我养了一只 {animal}，名叫 {name}。",
                    "养 {animal} 真有意思。",
                    "它叫什么名字？",
                    "它叫 {name}。",
                ),
                (
                    "我们捡到一只 {animal}，叫它 {name}。",
                    "现在它是你们的了。",
                    "我们捡到了什么？",
                    "你们捡到了一只 {animal}。",
                ),
            ],
            [{**animal, "name": name} for animal in table.ANIMALS[:6] for name in table.PET_NAMES],
        )
    ]
