"""Chats in the forms in which programs and corpora have them: who says what, and what is told."""

import dataclasses
import json
import re
import shutil
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.data.reading.helpers import TURNS, read, read_bytes
from towers.data.reading.encodings import rare_fraction
from towers.data.reading.layout import Layout
from towers.data.reading.messages import Message, Turns, sides_of, talks
from towers.data.reading.times import time_of


def said(*turns, names=("user", "assistant"), role="role", content="content"):
    return [{role: names[place % 2], content: text} for place, text in enumerate(turns)]


def lines_of(*records):
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


ORDERED = ["q", "a", "q2", "a2"]
PAIRS, BARE = [["q", "a"], ["q2", "a2"]], [["q1", "a1"], ["q2", "a2"]]
TREE = {"role": "prompter", "text": "q", "replies": [
    {"role": "assistant", "text": "worse", "rank": 1, "replies": []},
    {"role": "assistant", "text": "a", "rank": 0, "replies": []},
]}  # fmt: skip
RECORDS = {
    "calls of tools": (
        {"conversations": [
            {"from": "human", "value": "q"}, {"from": "function_call", "value": "{}"},
            {"from": "observation", "value": "7"}, {"from": "gpt", "value": "a"}]},
        ["q", "a"],
    ),
    "a role that only answers": (
        {"messages": said("hi", "q", "a", names=("npc 7", "user"))}, ["", "hi", "q", "a"]),
    "a third role": (
        {"messages": [*said("q", "a"), {"role": "critic", "content": "c"}, *said("q2", "a2")]},
        ORDERED,
    ),
    "speakers": (
        {"turns": [{"speaker": "USER", "text": "q"}, {"speaker": "USER", "text": "more"},
                   {"speaker": "SYSTEM", "text": "a"}]},
        ["q more", "a"],
    ),
    "authors": ({"messages": said("q", "q b", "a", names=("Ann", "Ann"), role="author",
                                  content="text")}, ["q q b a"]),
    "marked texts": ({"conversation": ["User: q", "Assistant: a"]}, ["q", "a"]),
    "a marked text with calls": (
        {"chat": "USER: q\n\nASSISTANT: <functioncall> {}\n\nFUNCTION RESPONSE: 7\n\nASSISTANT: a"},
        ["q", "a"]),
    "a tagged call": ({"messages": [*said("q", "<tool_call>{}</tool_call>"),
                                    {"role": "assistant", "content": "a"}]}, ["q", "a"]),
    "numbers of speakers": ({"dialog": said("q", "q b", "a", names=(1, 1), role="speaker_id")},
                            ["q q b a"]),
    "a list of speakers": ({"dialogue": ["q", "q b", "a"], "speakers": ["A", "A", "B"]},
                           ["q q b", "a"]),
    "creators": ({"messages": said("q", "q b", "a", names=({"name": "A"},) * 2, role="creator",
                                   content="text")}, ["q q b a"]),
    "a tree of ChatGPT": ({"title": "t", "current_node": "4", "mapping": {
        str(n): {"parent": str(n - 1), "message": {
            "author": {"role": role}, "content": {"content_type": "text", "parts": [text]}}}
        for n, (role, text) in enumerate((("system", ""), ("user", "q"), ("assistant", "a"),
                                          ("user", "q2"), ("assistant", "a2")))}}, ORDERED),
    "agents": ({"content": said("q", "a", names=("agent_1", "agent_2"), role="agent",
                                content="message")}, ["q", "a"]),
    "dialog": ({"dialog": ORDERED, "act": [1, 2, 3, 4]}, ORDERED),
    "data": ({"id": 0, "data": ORDERED}, ORDERED),
    "contents": (
        {"contents": [{"role": "user", "parts": [{"text": "q"}]},
                      {"role": "model", "parts": [{"text": "a"}]}]}, ["q", "a"]),
    "pairs": ({"conversation": [{"human": "q", "assistant": "a"},
                                {"human": "q2", "assistant": "a2"}]}, ORDERED),
    "context": ({"instruction": "do", "context": "this", "response": "a"}, ["do this", "a"]),
    "history": ({"instruction": "q2", "input": "", "output": "a2", "history": [["q", "a"]]},
                ORDERED),
    "preferences": ({"prompt": "q", "chosen": "a", "rejected": "b"}, ["q", "a"]),
    "a preferred text after messages": ({"prompt": said("q"), "chosen": "a"}, ["q", "a"]),
    "preferred messages": ({"prompt": "q", "chosen": said("q", "a")}, ["q", "a"]),
    "a preferred message": (
        {"conversations": said("q"), "chosen": said("x", "a")[1], "rejected": said("b")[0]},
        ["q", "a"],
    ),
    "preferred text": ({"chosen": "\n\nHuman: q\n\nAssistant: a"}, ["q", "a"]),
    "marks in an instruction": (
        {"instruction": "Human: q\nAssistant: a\nHuman: q2\nAssistant:", "input": "",
         "output": "a2"}, ORDERED),
    "marks after line ends that are spelled": (
        {"instruction": r"Human: q\nAssistant: a\nHuman: q2\nAssistant: ", "input": "",
         "output": "a2"}, ORDERED),
    "marks": ({"text": "### Human: q### Assistant: a### Human: q2### Assistant: a2"}, ORDERED),
    "a template": (
        {"text": "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>"}, ["q", "a"]),
    "a tree": ({"message_tree_id": 1, "prompt": TREE}, ["q", "a"]),
    "candidates": (
        {"utterances": [{"history": ["q"], "candidates": ["x", "a"]},
                        {"history": ["q", "a", "q2"], "candidates": ["y", "a2"]}]}, ORDERED),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_of_each_form_has_its_turns(tmp_path, name):
    record, expected = RECORDS[name]
    assert read_bytes(tmp_path, lines_of(record, record).encode())[0] == [expected] * 2


WHATSAPP = """\
[31.12.23, 22:03:11] Ann: q
[31.12.23, 22:03:40] Bob: a
[31.12.23, 22:04:00] Bob: \u200eimage omitted
[1.1.24, 10:04:00] Ann: q2
[1.1.24, 10:05:00] Bob: a2
"""
QQ = """\
消息记录

================================================================
消息对象:小明
================================================================

2019-03-04 12:33:01 小明
q

2019-03-04 12:33:09 我(12345)
a

2019-03-04 12:34:09 小明(1234567)
[图片]

2019-03-05 12:34:29 小明<a@qq.com>
q2

2019-03-05 12:34:39 我(12345)
a2
"""
WECHAT = """\
localId,TalkerId,Type,IsSender,CreateTime,StrContent
1,2,1,0,1600000000,q
2,5,1,0,1600000005,q2
3,2,1,1,1600000010,a
4,2,3,0,1600000020,<msg/>
5,5,1,1,1600000030,a2
"""
PERSONA = """\
1 your persona: i like cats.
2 q\ta\t\tx|y|a
1 your persona: i do not.
2 q2\ta2\t\tx|a2
"""
TELEGRAM = {"name": "Ann", "type": "personal_chat", "messages": [
    {"type": "service", "date": "2021-01-01T10:00:00", "actor": "Ann", "text": ""},
    {"type": "message", "date": "2021-01-01T10:00:00", "from": "Ann", "text": "q"},
    {"type": "message", "date": "2021-01-01T10:01:00", "from": "Me",
     "text": ["", {"type": "bold", "text": "a"}]},
    {"type": "message", "date": "2021-01-02T10:00:00", "from": "Ann", "text": "q2"},
    {"type": "message", "date": "2021-01-02T10:01:00", "from": "Me", "text": "a2"},
]}  # fmt: skip
INSTAGRAM = {"participants": [{"name": "Ann"}], "messages": [
    {"sender_name": "Bob", "timestamp_ms": 1600000003000, "content": "Bob sent an attachment."},
    {"sender_name": "Bob", "timestamp_ms": 1600000002000, "content": "a caf\u00c3\u00a9"},
    {"sender_name": "Ann", "timestamp_ms": 1600000001000, "content": "q"},
]}  # fmt: skip
SLACK = [
    {"type": "message", "subtype": "channel_join", "user": "U1", "text": "joined", "ts": "16.1"},
    {"type": "message", "user": "U1", "text": "q", "ts": "1600000001.1"},
    {"type": "message", "user": "U2", "text": "a", "ts": "1600000002.1"},
]
LINE = """\
2021/01/01(金)
10:00\tAnn\tq
10:01\tBob\ta
10:02\tBob\t[スタンプ]

2021/01/02(土)
10:00\tAnn\tq2
10:01\tBob\ta2
"""
TREES = lines_of(*(
    {"message_id": own, "parent_id": parent, "role": role, "text": text, "rank": rank}
    for own, parent, role, text, rank in (
        ("1", None, "prompter", "q", None), ("2", "1", "assistant", "worse", 1),
        ("3", "1", "assistant", "a", 0), ("4", None, "prompter", "q2", None),
        ("5", "4", "assistant", "a2", None), ("5", "5", "prompter", "again", None))
))  # fmt: skip
# How WhatsApp writes (the day, its time and the name), in several languages.
HEADS = (
    "31.12.23, 22:03 - {}: ", "\u200e[12/31/23, 10:03:11\u202fPM] {}: ", "2023-12-31, 22:03 - {}: ",
    "31/12/23, 10:03 p.\u00a0m. - {}: ", "31/12/2023 à 22:03 - {}: ", "31.12.2023 klo 22.03 - {}: ",
    "[2023/12/31 下午10:03:11] {}: ", "2023. 12. 31. 오후 10:03, {} : ",
    "2023-12-31 22 h 03 - {}: ",
    # ruff: noqa: RUF001 - Arabic digits, too.
    "٣١\u200f/١٢\u200f/٢٠٢٣، ١٠:٠٣ م - {}: ",
)  # fmt: skip
NO_TEXTS = (
    "<Media omitted>", "<Medien ausgeschlossen>", "<Médias omis>", "<Без медиафайлов>",
    "\u200eimage omitted", "IMG-1.jpg (file attached)", "This message was deleted",
    "Se eliminó este mensaje.", "null",
)  # fmt: skip
QQ_HEADS = ("{} 2019-03-04 12:33:01", "{}(123) 2019/3/4 12:33:01", "2019-03-04 上午 9:33:01 {}")
TOPICS = "".join(f"topic{'ab'[n % 2]}\tq{n}\ta{n}\n" for n in range(1, 9)).replace("topic", "t")
FILES = {
    **{f"whatsapp {n}.txt": (
        "".join(head.format(name) + f"{text}\n" for name, text in (
            ("Ann", "q"), ("Bob", "a <This message was edited>"), *(("Bob", t) for t in NO_TEXTS))),
        [["q", "a"]]) for n, head in enumerate(HEADS)},
    **{f"qq {n}.txt": (f"{head.format('Ann')}\nq\n\n{head.format('Bob')}\na\n", [["q", "a"]])
       for n, head in enumerate(QQ_HEADS)},
    "line.txt": (LINE, PAIRS),
    "trees.jsonl": (TREES, [PAIRS[0], ["q2", "a2", "again"]]),
    "wrong.jsonl": (lines_of(*({"prompt": q, "completion": a, "label": q != "q1"}
                               for q, a in (*PAIRS, ("q1", "bad")))), PAIRS),
    "judged.jsonl": (lines_of(*({"question": q, "answer": a, "label": label} for q, a, label in (
        ("q", "a", 1), ("q2", "a2", 1), ("q2", "bad", 0)))), PAIRS),
    "classes.jsonl": (lines_of(*({"question": q, "answer": a, "label": place}
                                 for place, (q, a) in enumerate(PAIRS))), PAIRS),
    "labels at the end.tsv": ("q1\ta1\t1\nq1\tb\t0\nq2\ta2\t1\n", BARE),
    "classes at the end.tsv": ("q\ta\t0\nq2\ta2\t1\nq3\ta3\t0\n", [*PAIRS, ["q3", "a3"]]),
    "classes.tsv": ("1\tq\ta\n0\tq2\ta2\n1\tq3\ta3\n", [*PAIRS, ["q3", "a3"]]),
    "topics.tsv": (TOPICS, [[f"q{n}", f"a{n}"] for n in range(1, 9)]),
    "ids.tsv": ("".join(f"q_{n}\tq{n}\ta{n}\n" for n in range(1, 4)), [*BARE, ["q3", "a3"]]),
    "wechat 2.csv": ("日期,发送者,类型,消息内容\n2020-01-01 10:00:00,Ann,文本,q\n"
                     "2020-01-01 10:00:10,Bob,文本,a\n2020-01-01 10:00:11,Bob,图片,x\n",
                     [["q", "a"]]),
    "whatsapp.txt": (WHATSAPP, PAIRS),
    "whatsapp 12 hours.txt": (
        "12/31/23, 10:03\u202fPM - Ann: q\n12/31/23, 10:04\u202fPM - Bob: a\nand b\n",
        [["q", "a\nand b"]],
    ),
    "qq.txt": (QQ, PAIRS),
    "wechat.csv": (WECHAT, PAIRS),
    "result.json": (json.dumps(TELEGRAM, indent=1), PAIRS),
    "all.json": (json.dumps({"chats": {"list": [TELEGRAM]}}), PAIRS),
    "skype.json": (json.dumps({"conversations": [{"MessageList": [
        {"from": name, "originalarrivaltime": f"2021-01-01T10:0{n}:00Z", "content": text}
        for n, name, text in ((1, "Bob", "a"), (0, "Ann", "q"))]}]}), [["q", "a"]]),
    "signal.json": (json.dumps([
        {"conversationId": "c", "type": way, "body": text, "sent_at": 1600000000000 + place}
        for place, (way, text) in enumerate((("incoming", "q"), ("outgoing", "a")))]),
        [["q", "a"]]),
    "kakao pc.txt": (
        "Ann 님과 카카오톡 대화\n\n--------------- 2021년 1월 1일 금요일 ---------------\n"
        "[Ann] [오전 10:00] q\n[Bob] [오전 10:01] a\n[Bob] [오전 10:02] 사진\n"
        "--------------- 2021년 1월 2일 토요일 ---------------\n"
        "[Ann] [오전 10:00] q2\n[Bob] [오전 10:01] a2\n", PAIRS),
    "kakao.txt": ("2021년 1월 1일 오전 10:00, Ann : q\n2021년 1월 1일 오전 10:01, Bob : a\n",
                  [["q", "a"]]),
    "dialogstudio.jsonl": (lines_of({"log": [
        {"turn id": 1, "user utterance": q, "system response": a} for q, a in PAIRS]}),
        [["q", "a", "q2", "a2"]]),
    "baike.jsonl": (lines_of(*({"title": q, "desc": "", "answer": a} for q, a in PAIRS)), PAIRS),
    "hc3.jsonl": (lines_of(*({"question": q, "human_answers": ["x"], "chatgpt_answers": [a]}
                             for q, a in PAIRS)), PAIRS),
    "lists of json.csv": ("id,messages\n" + "".join(
        f'{place},"{json.dumps(said(*pair)).replace(chr(34), chr(34) * 2)}"\n'
        for place, pair in enumerate(PAIRS)), PAIRS),
    "no header.tsv": ("q\ta\nuser\ttext\n", [["q", "a"], ["user", "text"]]),
    "Q and A.tsv": ("Q\tA\nq\ta\nq2\ta2\n", PAIRS),
    "Q and A.csv": ("Q,A\nq,a\nq2,a2\n", PAIRS),
    "two headers.csv": ("dialogue,,meta\nquestion,answer,source\nq,a,x\nq2,a2,x\n", PAIRS),
    "nested.jsonl": (lines_of(*({"messages": [
        {"role": "user", "content": q},
        {"message": {"role": "assistant", "tool_calls": [{}], "content": None}},
        {"role": "tool", "content": "4"}, {"role": "assistant", "content": a}]}
        for q, a in PAIRS)), PAIRS),
    "other key.jsonl": (lines_of(*({"items": [
        {"sender": "Ann", "text": q}, {"sender": "Bob", "text": a}]} for q, a in PAIRS)), PAIRS),
    "message_1.json": (json.dumps(INSTAGRAM, indent=2), [["q", "a café"]]),
    "slack.json": (json.dumps(SLACK), [["q", "a"]]),
    "persona.txt": (PERSONA, PAIRS),
    "marked.txt": ("User: q\nBot: a\n\nUser: q2\nBot: a2\n", PAIRS),
    "hashes.txt": ("### Human: q\n### Assistant: a\n\n### Human: q2\n### Assistant: a2\n", PAIRS),
    "eou.txt": ("q __eou__ a __eou__\nq2 __eou__ a2 __eou__\n", PAIRS),
    "bars.csv": ("q | a\nq2 | a2\n", PAIRS),
    "separator.csv": ("sep=;\nq1;a1\nq2;a2\n", BARE),
    "bare.csv": ("q1,a1\nq2,a2\n", BARE),
    "numbered.tsv": ("0\tq1\ta1\n1\tq2\ta2\n", BARE),
    "labelled.tsv": ("1\tq1\ta1\n0\tq1\tb\n1\tq2\ta2\n", BARE),
    "pretty.json": ('{\n "q": "q",\n "a": "a"\n}\n{\n "q": "q2",\n "a": "a2"\n}\n', PAIRS),
    "chatterbot.json": (json.dumps({"conversations": PAIRS}), PAIRS),
    "chatterbot.yml": ("categories:\n- x\nconversations:\n- - q\n  - a\n- - q2\n  - a2\n", PAIRS),
    "by name.json": (json.dumps({"d1": {"log": [{"text": "q"}, {"text": "a"}]}, "d2": {
        "messages": said("q2", "a2", names=("usr", "sys"))}}), PAIRS),
    "content.json": (json.dumps([{"id": 1, "content": pair} for pair in PAIRS]), PAIRS),
    "discord.json": (json.dumps({"channel": {"name": "c"}, "messages": [
        {"type": "Default", "timestamp": f"2021-01-01T10:0{place}:00", "content": text,
         "author": {"id": "9", "name": name}}
        for place, (name, text) in enumerate((("Ann", "q"), ("Bob", "a")))]}), [["q", "a"]]),
    "spoken.csv": (
        "conv_id,context,prompt,speaker_idx,utterance\n1,sad,x,1,q\n1,sad,x,0,a\n"
        "2,glad,x,1,q2\n2,glad,x,0,a2\n", PAIRS),
    "utterances.jsonl": (
        lines_of(*({"dialogue_id": number // 2, "speaker": ("USER", "SYSTEM")[number % 2],
                    "utterance": text} for number, text in enumerate(ORDERED))), PAIRS),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_each_form_has_its_dialogues(tmp_path, name):
    content, expected = FILES[name]
    if name.endswith(".yml"):
        pytest.importorskip("yaml")
    assert read_bytes(tmp_path, content.encode(), name)[0] == expected


def test_messages_of_columns_that_are_named(tmp_path):
    content = b"who,said,at\nAnn,q,2021-01-01 10:00\nBob,a,2021-01-01 10:01\n"
    layout = Layout(sender="who", text="said", time="at", me="ann")
    found, report = read_bytes(tmp_path, content, "chat.csv", layout=layout)
    assert found == [["", "q", "a"]] and found[0].has_roles
    assert "answers: Ann (1); asks: Bob (1)" in "\n".join(report.lines())
    with pytest.raises(ValueError, match=r"one of Ann, Bob\. Received 'Anna'\. Did you mean Ann\?"):
        read_bytes(tmp_path, content, "chat.csv", layout=dataclasses.replace(layout, me="Anna"))


def test_two_files_of_lines_are_questions_and_answers(tmp_path):
    (tmp_path / "train.enc").write_text("q\nq2\n")
    (tmp_path / "train.dec").write_text("a\na2\n")
    assert read(tmp_path)[0] == read(tmp_path / "train.enc")[0] == PAIRS
    (tmp_path / "mine").write_text("a\na2\na3\n")
    layout = Layout(answers=str(tmp_path / "mine"))
    with pytest.raises(ValueError, match=r"mine:3: expected as many lines"):
        read(tmp_path / "train.enc", layout=layout)


def test_names_of_files_tell_the_parts(tmp_path):
    for part in ("train", "validation", "test"):
        (tmp_path / f"{part}.tsv").write_text(f"{part}\ta\n")
    dialogues, report = read(tmp_path)
    assert dialogues == [["train", "a"], ["validation", "a"]]
    assert [turns.is_held_out for turns in dialogues] == [False, True]
    assert report.skipped == {"files of a further part, for `towers evaluate --data`": 1}
    (tmp_path / "validation.tsv").unlink()
    assert [(*turns, turns.is_held_out) for turns in read(tmp_path)[0]] == [
        ("test", "a", True),
        ("train", "a", False),
    ]


@pytest.mark.parametrize("encoding", ["big5", "shift_jis", "euc_jp", "euc_kr"])
def test_a_codec_that_decodes_into_characters_that_nobody_writes_is_refused(tmp_path, encoding):
    japanese = "今日は良い天気ですね散歩に行きます"
    texts = {"big5": "今天天氣真好我們出去走走", "shift_jis": japanese, "euc_jp": japanese,
             "euc_kr": "오늘 날씨가 정말 좋네요 산책하러 갈까요"}  # fmt: skip
    content = (f"{texts[encoding]}\t{texts[encoding]}\n" * 5).encode(encoding)
    with pytest.raises(ValueError, match=rf"--encoding {encoding}"):
        read_bytes(tmp_path, content, encoding="gb18030")
    assert len(read_bytes(tmp_path, content, encoding=encoding)[0]) == 5
    assert rare_fraction("今天天气真好我们出去走走请问今天天氣真好我們出去走走") == 0


@pytest.mark.parametrize("encoding", ["gb18030", "cp1252", "latin-1", "big5"])
def test_utf_8_is_not_read_by_another_codec(tmp_path, encoding):
    content = "café déjà vu 今天天气真好\t好的我们走吧\n".encode() * 2
    with pytest.raises(ValueError, match=r"found UTF-8\. Give --encoding utf-8"):
        read_bytes(tmp_path, content, encoding=encoding)


def test_names_of_other_columns_are_no_pair(tmp_path):
    with pytest.raises(ValueError, match="lines of no known kind"):
        read_bytes(tmp_path, b"dialog,act\n\"['q' 'a']\",1\n", "daily.csv")
    with pytest.raises(ValueError, match="lines of no known kind"):
        read_bytes(tmp_path, b"<question id=1>\tq\n<answer id=1>\ta\n====\n" * 2)
    with pytest.raises(ValueError, match="lines of no known kind"):
        read_bytes(tmp_path, b"| question | answer |\n|---|---|\n| q | a |\n| q2 | a2 |\n")


def test_archives_are_refused_also_where_their_bytes_look_like_records(tmp_path):
    (tmp_path / "chats.jsonl").write_text(lines_of(*({"q": "q", "a": "a"} for _ in range(9))))
    for kind in ("zip", "tar", "gztar"):
        path = shutil.make_archive(str(tmp_path / kind), kind, tmp_path, "chats.jsonl")
        with pytest.raises(ValueError, match="an archive, which must be unpacked first"):
            read(path)


def test_one_bad_byte_is_no_other_encoding(tmp_path):
    with pytest.raises(ValueError, match="lines of no known kind") as error:
        read_bytes(tmp_path, b"some words\n" * 49 + b"bad \xff byte\n")
    assert "encoding" not in str(error.value)


def test_a_carriage_return_alone_ends_lines(tmp_path):
    assert read_bytes(tmp_path, b"q\ta\rq2\ta2\r")[0] == PAIRS


def test_the_mark_of_utf_16_is_enough(tmp_path):
    assert read_bytes(tmp_path, "q\ta\nq2\ta2\n".encode("utf-16"))[0] == PAIRS


def test_what_is_not_used_is_told(tmp_path):
    records = [{"question": "q", "answer": "a", "category": "x"}] * 3
    _, report = read_bytes(tmp_path, lines_of(*records).encode())
    assert "taken: question (3), answer (3); not used: category (3)" in report.lines()


@pytest.mark.parametrize("content", ['{"greeting": {"a": 1}}', '{\n "greeting": 1}'])
def test_one_object_is_named_by_its_keys(tmp_path, content):
    with pytest.raises(ValueError, match=r"the keys? '?greeting"):
        read_bytes(tmp_path, content.encode(), "one.json")


def test_ends_of_turns_in_a_column_are_not_read_as_turns(tmp_path):
    content = b"Context,Utterance,Label\nhi __eou__ __eot__,yes,1\nhi __eou__,no,0\n"
    with pytest.raises(ValueError, match="lines of no known kind"):
        read_bytes(tmp_path, content, "ubuntu.csv")


def test_columns_differ():
    with pytest.raises(ValueError, match="must differ"):
        Layout(columns=("text", "Text"))
    with pytest.raises(ValueError, match="give both"):
        Layout(sender="who")


ROLES = st.sampled_from(
    ["user", "human", "assistant", "gpt", "system", "tool", "function_call", "critic", "Ann", "npc"]
)


@given(messages=st.lists(st.tuples(ROLES, TURNS.filter(str.strip)), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_no_answer_is_of_one_who_asks(tmp_path_factory, messages):
    """Whatever the roles are: an odd turn holds no text of a user, an even one none of the bot."""
    texts = [(role, f"{letter}{number}") for number, ((role, _), letter) in enumerate(
        zip(messages, string.ascii_letters, strict=False))]  # fmt: skip
    record = {"messages": [{"role": role, "content": text} for role, text in texts]}
    try:
        dialogues, _ = read_bytes(tmp_path_factory.mktemp("roles"), lines_of(record).encode())
    except ValueError:
        return  # Nobody said a text.
    sides = sides_of([role for role, _ in texts])
    for turns in dialogues:
        for role, text in texts:
            places = [place for place, turn in enumerate(turns) if text in turn.split()]
            assert len(places) == (sides[role] is not None)
            if turns.has_roles and places:
                assert places[0] % 2 == (sides[role] == "answers")


@given(
    st.binary(max_size=300)
    | st.lists(
        st.sampled_from(
            re.findall(
                r"\S+|\s",
                f"{WHATSAPP}{QQ}{WECHAT}{PERSONA}{json.dumps(TELEGRAM)}{json.dumps(SLACK)}",
            )
        ),
        max_size=80,
    ).map(lambda words: "".join(words).encode())
)
@example(b"\x01\t\x01\x800")
@settings(max_examples=60, deadline=None)
def test_whatever_the_bytes_turns_are_in_the_file_or_it_is_refused(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("bytes")
    try:
        dialogues, _ = read_bytes(folder, content, "chat.csv")
    except ValueError as error:
        assert str(folder) in str(error)
        return
    # A byte that is no text is left out, and counted.
    text = "".join(content.decode(codec, "ignore") for codec in ("utf-8", "gb18030", "utf-16"))
    for word in " ".join(turn for turns in dialogues for turn in turns).split():
        assert word.strip('"') in text or "\\u" in text or '"' in text


def test_messages_of_the_newest_first_are_turned_round():
    messages = [Message("a", str(number), time_of(number)) for number in (3, 2, 2, 1)]
    (talk,) = talks(messages, day_first=True)
    assert [message.text for message in talk] == ["1", "2", "2", "3"]


def test_a_pair_of_people_is_not_one_of_roles():
    assert not Turns(["q", "a"]).has_roles
    assert sides_of(["Ann", "Bob"]) == {"Ann": "Ann", "Bob": "Bob"}


def test_a_system_that_nobody_asks_does_not_answer():
    assert sides_of(["system", "tool"]) == {"system": None, "tool": None}
