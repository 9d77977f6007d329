"""The Chinese dialogues."""

from __future__ import annotations

from data.samples.conversations.kinds import (
    Kind,
    both_ways,
    comparisons,
    differences,
    neighbours,
    rows,
    sums,
)

OPENINGS = ("", "打扰一下。", "我有一个问题。", "听我说。", "下一个。")
NUMBERS = (
    "零 一 二 三 四 五 六 七 八 九 十 十一 十二 十三 十四 十五 十六 十七 十八 十九 二十"
).split()
DAYS = "星期一 星期二 星期三 星期四 星期五 星期六 星期日".split()
MONTHS = "一月 二月 三月 四月 五月 六月 七月 八月 九月 十月 十一月 十二月".split()
OPPOSITES = [
    tuple(pair.split("-"))
    for pair in (
        "大-小 高-矮 长-短 快-慢 冷-热 新-旧 早-晚 远-近 轻-重 软-硬 粗-细 深-浅 胖-瘦 明-暗 "
        "干净-肮脏 高兴-难过 安静-吵闹 简单-复杂 勇敢-胆小 富有-贫穷 聪明-愚蠢 安全-危险 "
        "开始-结束 成功-失败 朋友-敌人 白天-黑夜 前进-后退 左边-右边 上面-下面 城市-乡村"
    ).split()
]
ANIMALS = rows(
    "animal sound home food",
    [
        ("小狗", "汪汪", "狗窝", "骨头"),
        ("小猫", "喵喵", "沙发上", "鱼"),
        ("母鸡", "咯咯", "鸡笼", "米"),
        ("鸭子", "嘎嘎", "池塘", "小虾"),
        ("青蛙", "呱呱", "田里", "虫子"),
        ("绵羊", "咩咩", "草原", "青草"),
        ("奶牛", "哞哞", "牛棚", "干草"),
        ("蜜蜂", "嗡嗡", "蜂房", "花蜜"),
        ("老鼠", "吱吱", "地洞", "大米"),
        ("麻雀", "叽叽", "树上", "谷子"),
        ("老虎", "嗷嗷", "山林", "肉"),
        ("蟋蟀", "唧唧", "草丛", "菜叶"),
    ],
)
CAPITALS = rows(
    "country capital",
    [
        pair.split("-")
        for pair in (
            "中国-北京 日本-东京 法国-巴黎 英国-伦敦 德国-柏林 意大利-罗马 西班牙-马德里 "
            "俄罗斯-莫斯科 泰国-曼谷 越南-河内 韩国-首尔 埃及-开罗 希腊-雅典 奥地利-维也纳 "
            "波兰-华沙 瑞典-斯德哥尔摩 挪威-奥斯陆 芬兰-赫尔辛基 丹麦-哥本哈根 葡萄牙-里斯本 "
            "匈牙利-布达佩斯 加拿大-渥太华 古巴-哈瓦那 智利-圣地亚哥 秘鲁-利马 伊朗-德黑兰 "
            "土耳其-安卡拉 爱尔兰-都柏林"
        ).split()
    ],
)
COLOURS = rows(
    "thing colour",
    [
        pair.split("-")
        for pair in (
            "雪-白色 草地-绿色 煤炭-黑色 牛奶-白色 巧克力-棕色 菠菜-绿色 辣椒-红色 柠檬-黄色 "
            "香蕉-黄色 咖啡-棕色 盐-白色 茄子-紫色 葡萄-紫色 番茄-红色 草莓-红色 黄瓜-绿色 "
            "墨水-黑色 乌鸦-黑色 天鹅-白色 大海-蓝色 晴天-蓝色 玉米-黄色 樱桃-红色 石头-灰色"
        ).split()
    ],
)
MEASURES = rows(
    "thing measure",
    [
        pair.split("-")
        for pair in (
            "书-本 猫-只 马-匹 车-辆 桌子-张 椅子-把 衣服-件 裤子-条 鞋子-双 花-朵 树-棵 "
            "飞机-架 电影-部 医生-位 信-封 房子-座 雨伞-把 笔-支 牛-头 船-艘 镜子-面 照片-张"
        ).split()
    ],
)
NAMES = (
    "小明 小红 小刚 小丽 小芳 小强 小华 小军 小燕 小林 老王 老李 老张 老陈 老赵 老周 阿宝 "
    "阿珍 阿福 阿兰 大伟 大勇 丽丽 芳芳"
).split()
PET_NAMES = "豆豆 毛毛 花花 旺旺 球球 乐乐 多多 皮皮 点点 贝贝 果果 米米".split()
WORDS = (
    "苹果 窗户 花园 音乐 橙子 高山 夏天 冬天 海岛 蜡烛 铅笔 兔子 村庄 毯子 月亮 太阳 书包 "
    "手表 火车 雨衣 足球 星星"
).split()
JOBS = rows(
    "job place work",
    [
        ("面包师", "面包店", "烤面包"),
        ("老师", "学校", "教学生"),
        ("医生", "医院", "看病人"),
        ("农民", "农田", "种庄稼"),
        ("厨师", "餐厅", "做饭菜"),
        ("水手", "轮船", "开船"),
        ("演员", "剧院", "演戏"),
        ("矿工", "矿井", "挖煤"),
        ("法官", "法院", "判案"),
        ("园丁", "公园", "种花"),
        ("邮递员", "邮局", "送信"),
        ("飞行员", "机场", "开飞机"),
    ],
)


def kinds() -> list[Kind]:
    """Returns every kind of dialogue."""
    return [*arithmetic(), *calendar(), *words(), *world(), *people()]


def arithmetic() -> list[Kind]:
    """Returns the kinds that deal with numbers."""
    return [
        Kind(
            "sums",
            [
                ("{a} 加 {b} 等于几？", "等于 {c}。"),
                ("请问 {a} 加上 {b} 是多少？", "一共是 {c}。"),
                ("把 {a} 和 {b} 加起来。", "结果是 {c}。"),
                ("你会算 {a} 加 {b} 吗？", "会，是 {c}。"),
                ("我有 {a} 个苹果，又买了 {b} 个。", "那么你有 {c} 个苹果。"),
                ("先算 {a} 加 {b} 吧。", "得 {c}。", "再加一呢？", "得 {d}。"),
                ("从 {a} 开始，加上 {b}。", "现在是 {c}。", "还要加二。", "现在是 {e}。"),
            ],
            sums(NUMBERS, 9),
        ),
        Kind(
            "differences",
            [
                ("{a} 减 {b} 等于几？", "等于 {c}。"),
                ("从 {a} 里面拿走 {b}。", "还剩 {c}。"),
                ("请问 {a} 减去 {b} 是多少？", "答案是 {c}。"),
                ("我有 {a} 块钱，花了 {b} 块。", "你还有 {c} 块钱。"),
            ],
            differences(NUMBERS, 10),
        ),
        Kind(
            "comparisons",
            [
                ("{a} 和 {b} 哪个大？", "{larger} 大。"),
                ("{a} 和 {b} 哪个小？", "{smaller} 小。"),
                ("请说出 {a} 与 {b} 里面大的数。", "是 {larger}。"),
                ("请说出 {a} 与 {b} 里面小的数。", "是 {smaller}。"),
            ],
            comparisons(NUMBERS, 10),
        ),
    ]


def calendar() -> list[Kind]:
    """Returns the kinds that deal with days and months."""
    after: list[tuple[str, ...]] = [
        ("{x} 的后面是什么？", "是 {after}。"),
        ("{x} 的前面是什么？", "是 {before}。"),
        ("请说 {x} 的下一个。", "下一个是 {after}。"),
        ("请说 {x} 的上一个。", "上一个是 {before}。"),
        ("你知道 {x} 之后是什么吗？", "知道，{after}。"),
        ("你知道 {x} 之前是什么吗？", "知道，{before}。"),
        ("从 {x} 往下数。", "{after}。", "然后呢？", "{later}。"),
    ]
    today: list[tuple[str, ...]] = [
        ("今天是 {x}，明天呢？", "明天是 {after}。"),
        ("今天是 {x}，昨天呢？", "昨天是 {before}。"),
        ("今天是 {x}，后天呢？", "后天是 {later}。"),
    ]
    return [
        Kind("weekdays", after + today, neighbours(DAYS)),
        Kind("months", after, neighbours(MONTHS)),
        Kind("counting", after[:-1], neighbours(NUMBERS)[1:-1]),
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
            ],
            both_ways(OPPOSITES),
        ),
        Kind(
            "measures",
            [
                ("{thing} 用什么量词？", "用 {measure}。"),
                ("一什么 {thing}？", "一 {measure} {thing}。"),
                ("我看见很多 {thing}。", "我只看见一 {measure} {thing}。"),
                ("请问 {thing} 的量词是什么？", "量词是 {measure}。"),
            ],
            MEASURES,
        ),
        Kind(
            "repeating",
            [
                ("请说 {word}。", "{word}。"),
                ("请说两遍 {word}。", "{word}，{word}。"),
                ("请说三遍 {word}。", "{word}，{word}，{word}。"),
                ("跟我念：{word}。", "我念了 {word}。"),
                ("你会写 {word} 吗？", "当然会：{word}。"),
            ],
            [{"word": word} for word in WORDS],
        ),
    ]


def world() -> list[Kind]:
    """Returns the kinds that deal with things, animals and places."""
    return [
        Kind(
            "capitals",
            [
                ("{country} 的首都是哪里？", "是 {capital}。"),
                ("你知道 {country} 的首都吗？", "知道，是 {capital}。"),
                ("{capital} 是哪个国家的首都？", "是 {country} 的首都。"),
                ("我要去 {country} 旅行。", "别忘了看看 {capital}！"),
                ("我住在 {capital}。", "那么你住在 {country}。"),
                ("请在地图上找 {country} 的首都。", "找到了，{capital}。"),
            ],
            CAPITALS,
        ),
        Kind(
            "colours",
            [
                ("{thing} 是什么颜色的？", "是 {colour} 的。"),
                ("请描述一下 {thing}。", "它是 {colour} 的。"),
                ("{thing} 是粉色的吗？", "不，{thing} 是 {colour} 的。"),
                ("我想画 {thing}。", "你需要 {colour} 的颜料。"),
                ("说到 {thing} 你想到什么颜色？", "我想到 {colour}。"),
            ],
            COLOURS,
        ),
        Kind(
            "animals",
            [
                ("{animal} 怎么叫？", "它 {sound} 叫。"),
                ("{animal} 住在哪里？", "住在 {home}。"),
                ("{animal} 喜欢吃什么？", "它喜欢吃 {food}。"),
                ("我听见 {sound} 的声音。", "那是 {animal}。"),
                ("谁住在 {home}？", "{animal} 住在那里。"),
                ("看，一只 {animal}！", "我听见它 {sound} 叫。"),
                ("{animal} 饿了。", "给它一点 {food} 吧。"),
            ],
            ANIMALS,
        ),
        Kind(
            "jobs",
            [
                ("{job} 做什么工作？", "{job} {work}。"),
                ("{job} 在哪里上班？", "在 {place}。"),
                ("谁 {work}？", "是 {job}。"),
                ("谁在 {place} 上班？", "{job} 在那里上班。"),
                ("我叔叔是 {job}。", "原来他 {work}。"),
                ("我认识一位 {job}。", "你们是在 {place} 认识的吗？"),
            ],
            JOBS,
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
            [{"name": name} for name in NAMES],
        ),
        Kind(
            "pets",
            [
                ("我的 {animal} 叫 {name}。", "{name} 这个名字很好听。",
                 "它怎么叫？", "它 {sound} 叫。"),
                ("{name} 是我养的 {animal}。", "你好，{name}！",
                 "谁是 {name}？", "{name} 是你养的 {animal}。"),
                ("我养了一只 {animal}，名叫 {name}。", "养 {animal} 真有意思。",
                 "它叫什么名字？", "它叫 {name}。"),
                ("我们捡到一只 {animal}，叫它 {name}。", "现在它是你们的了。",
                 "我们捡到了什么？", "你们捡到了一只 {animal}。"),
            ],
            [{**animal, "name": name} for animal in ANIMALS[:6] for name in PET_NAMES],
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
    ]  # fmt: skip
