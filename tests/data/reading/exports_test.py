"""Chats and published records as more programs write them; what is no talk never becomes a turn."""
# ruff: noqa: RUF001 - letters of other scripts look like Latin ones.

import bz2
import json
import lzma

import pytest

from tests.data.reading.helpers import read, read_bytes
from towers.data.reading.notices import is_notice

PAIR = [["q", "a"]]
PAIRS = [["q", "a"], ["q2", "a2"]]


def lines_of(*records):
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def two(head, below=""):
    """Returns two messages, each behind (or below) a head."""
    return "".join(
        f"{head.format(name)}{below}{text}\n" for name, text in (("Ann", "q"), ("Bob", "a"))
    )


HEADS = {
    "bulgarian": "15.01.24 г., 15:04 ч. - {}: ",
    "greek": "15/1/24, 3:04\u202fμ.μ. - {}: ",
    "vietnamese": "15:04, 15/01/2024 - {}: ",
    "iso": "[2024-01-15T15:04:10] {}: ",
    "kakao in english": "January 15, 2024 at 3:04 PM, {} : ",
    "a file of wechat": "{} (2024-01-15 15:04:10): ",
    "a transcript": "[00:01:05] {}: ",
    "tabs": "2024-01-15 15:04:10\t{}\t",
    "a script": "{}: ",
    "a script in full width": "{}：",
    "irregular marks": "\u200e[15.01.24, 15:04:10] \u202a{}\u202c: ",
}
BELOW = {
    "discord": "[01/15/2024 3:04 PM] {}\n",
    "discord copied": "{} — 01/15/2024 3:04 PM\n",
    "telegram copied": "{}, [15.01.2024 15:04]\n",
    "imessage": "Jan 15, 2024  3:04:10 PM (Read by you after 3 seconds)\n{}\n",
    "without seconds": "{}  2024/1/15 15:04\n",
}


@pytest.mark.parametrize("name", HEADS)
def test_a_message_is_behind_its_head(tmp_path, name):
    twice = two(HEADS[name]) * 2
    expected = [["q", "a", "q", "a"]]
    assert read_bytes(tmp_path, twice.encode())[0] == expected


@pytest.mark.parametrize("name", BELOW)
def test_a_message_is_below_its_head(tmp_path, name):
    assert read_bytes(tmp_path, two(BELOW[name]).encode())[0] == PAIR


DIRECTED = """\
[1/15/24, 3:00:00\u202fPM] Club: \u200eMessages and calls are end-to-end encrypted.
[1/15/24, 3:01:00\u202fPM] Ann: q
\u200e[1/15/24, 3:02:00\u202fPM] Bob: \u200eimagen omitida
\u200e[1/15/24, 3:02:40\u202fPM] Bob: Report.pdf • \u200e3 pages \u200edocument omitted
\u200e[1/15/24, 3:02:55\u202fPM] Bob: \u200eMissed voice call, \u200eTap to call back
[1/15/24, 3:03:00\u202fPM] Bob: a \u200e<attached: 1.jpg>
"""
CAPTIONED = """\
[1/15/24, 3:01:00\u202fPM] Ann: look at this wonderful evening \u200eimage omitted
[1/15/24, 3:02:00\u202fPM] Bob: it is \u200ewonderful
"""
NOTICED = """\
1/15/24, 3:01 PM - Ann created group "Trip: 2024"
1/15/24, 3:02 PM - Ann changed the subject from "a: b" to "c: d"
1/15/24, 3:04 PM - Ann: q
1/15/24, 3:05 PM - Bob: IMG-1.jpg (bestand bijgevoegd)
a
1/15/24, 3:06 PM - Bob: Waiting for this message. This may take a while.
1/15/24, 3:07 PM - Bob: Bu mesaj silindi
"""
UNSENT = """\
2024/01/15(Mon)
15:04\tAnn\tq
15:04\t\tAnn unsent a message.
15:05\tBob\t"a
b"
15:06\tCarl joined the chat.
"""
APPLE = """\
Jan 15, 2024  3:04:05 PM
Ann
q

Jan 15, 2024  3:05:05 PM
Me
a
Tapbacks:
    Loved by Ann

Jan 15, 2024  3:05:35 PM
Me
/home/me/Attachments/x.heic

Jan 15, 2024  3:05:37 PM
Me
attachments/7.heic

Jan 15, 2024  3:05:45 PM
Ann named the conversation Fun

Jan 16, 2024 10:06:05 AM
Ann
q2
    Jan 16, 2024 10:06:25 AM
    Me
    a2
"""
SMS = """\
<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>
<!--File Created By SMS Backup & Restore-->
<smses count="3">
  <sms address="+1" date="1705330860000" type="1" body="it&apos;s &gt; q&#10;more" />
  <sms address="+2" date="1705330865000" type="1" body="q2" contact_name='An "A"' />
  <sms address="+1" date="1705330870000" type="2" body="a" />
  <sms address="+1" date="1705330871000" type="3" body="a draft" />
  <mms address="+2" date="1705330880000" msg_box="2">
    <parts>
      <part ct="application/smil" text="&lt;smil/&gt;" />
      <part ct="image/jpeg" text="null" />
      <part ct="text/plain" text="a2" />
    </parts>
  </mms>
</smses>
"""
BROKEN_UP = [  # Conversations that lie beside each other in time.
    {"From": name, "Media Type": "TEXT", "Content": text,
     "Created": f"2024-01-15 15:0{minute}:05 UTC"}
    for minute, name, text in ((1, "Ann", "q"), (3, "Me", "a"), (2, "Carl", "q2"), (4, "Me", "a2"))
]  # fmt: skip
DATED = "2024-01-15 15:0{}:05"
SAME_NAME = {"chats": {"list": [  # Of two people, and of one whose account was deleted.
    {"name": name, "messages": [
        {"type": "message", "date_unixtime": str(1705330860 + 2 * n + m), "from": sender,
         "from_id": f"user{m}", "text": text}
        for m, (sender, text) in enumerate(((name, f"q{n}"), ("Bob", f"a{n}")))]}
    for n, name in enumerate(("Ann", "Ann", None))]}}  # fmt: skip
FILES = {
    "directed.txt": (DIRECTED, PAIR),
    "captioned.txt": (CAPTIONED, [["look at this wonderful evening", "it is wonderful"]]),
    "a group.txt": ("1/15/24, 3:00 PM - Ann added Carl\n" * 30
                    + two("1/15/24, 3:01 PM - {}: "), PAIR),
    "a poem.txt": ("1/15/24, 3:00 PM - Ann: x\n" + "y\n" * 30 + two("1/16/24, 3:01 PM - {}: "),
                   [["x\n" + "y\n" * 29 + "y"], ["q", "a"]]),
    "same name.json": (json.dumps(SAME_NAME), [[f"q{n}", f"a{n}"] for n in range(3)]),
    "weflow.json": (json.dumps({"weflow": {"version": "1"}, "messages": [
        {"createTime": 1705330860 + n, "type": kind, "content": text, "isSend": n // 2,
         "senderDisplayName": "x"}
        for n, (kind, text) in enumerate((("文本消息", "q"), ("图片消息", "[图片]"),
                                          ("文本消息", "a"), ("图片消息", "[图片]")))]}), PAIR),
    "calls.json": (json.dumps({"messages": [
        {"sender_name": name, "timestamp_ms": 1705330860000 + n, "content": text, **more}
        for n, (name, text, more) in enumerate((
            ("Ann", "q", {}), ("Ann", "Ann started a video chat.", {}),
            ("Ann", "Videochat beendet", {"call_duration": 7}), ("Bob", "a", {})))]}), PAIR),
    "kakao.txt": (
        "[Ann] [오후 3:01] q\n[Bob] [오후 3:02] a\nAnn님이 나갔습니다.\n", PAIR),
    "kakao of phones.txt": (two("2024년 1월 15일 오후 3:01, {} : ")
                            + "2024년 1월 15일 오후 3:03, Ann님이 나갔습니다.\n", PAIR),
    "qq.txt": (two("2024-01-15 15:04:05 {}(1)\n") + "2024-01-15 15:05:05 系统消息(10000)\nx\n",
               PAIR),
    "noticed.txt": (NOTICED, PAIR),
    "unsent.txt": (UNSENT, [["q", "a\nb"]]),
    "apple.txt": (APPLE, PAIRS),
    "sms.xml": (SMS, [["it's > q\nmore", "a"], ["q2", "a2"]]),
    "discord.txt": (
        "=====\nChannel: c\n=====\n\n[01/15/2024 3:04 PM] Ann\nq\n\n[01/15/2024 3:05 PM] Bob\na\n\n"
        "{Attachments}\nhttps://x\n\n{Reactions}\n+1\n\n=====\nExported 2 message(s)\n=====\n",
        PAIR),
    "snapchat.json": (json.dumps({"ann": BROKEN_UP[:2], "carl": BROKEN_UP[2:]}), PAIRS),
    "arena.jsonl": (lines_of({side: [{"role": "user", "content": "q"},
                                     {"role": "assistant", "content": text}]
                              for side, text in (("chat_a", "a"), ("chat_b", "b"))}),
                    [["q", "a"], ["q", "b"]]),
    "messenger.json": (json.dumps({"participants": ["Ann", "Bob"], "messages": [
        {"senderName": name, "text": text, "timestamp": 1705330860000 + place, "type": "text",
         "isUnsent": text == "gone"}
        for place, (name, text) in enumerate(
            (("Ann", "q"), ("Ann", "more"), ("Bob", "a"), ("Bob", "gone")))]}), [["q more", "a"]]),
    "imazing.csv": (
        "Chat Session,Message Date,Type,Sender Name,Text\n"
        + "".join(f"{who},{DATED.format(n)},{way},{name},{text}\n" for n, (who, way, name, text) in
                  enumerate((("Ann", "Incoming", "Ann", "q"), ("Carl", "Incoming", "Carl", "q2"),
                             ("Ann", "Outgoing", "", "a"), ("Carl", "Outgoing", "", "a2"),
                             ("Ann", "Notification", "", "You named it")))), PAIRS),
    "linkedin.csv": (
        "CONVERSATION ID,FROM,DATE,CONTENT\nc,Ann,2024-01-15 15:01:05 UTC,q\n"
        "d,Carl,2024-01-15 15:02:05 UTC,q2\nc,Bob,2024-01-15 15:03:05 UTC,a\n"
        "d,Bob,2024-01-15 15:04:05 UTC,a2\n", PAIRS),
    "viber.csv": ("Date,Time,Sender name,Message text\n15/01/2024,15:04:05,Ann,q\n"
                  "15/01/2024,15:05:05,Bob,a\n16/01/2024,15:04:05,Ann,q2\n16/01/2024,15:05:05,Bob,a2\n",
                  PAIRS),
    "kakao.csv": ("Date,User,Message\n2024-01-15 15:04:05,Ann,q\n2024-01-15 15:05:05,Bob,a\n"
                  "2024-01-15 15:05:06,Bob,사진\n2024-01-15 15:05:07,Ann,삭제된 메시지입니다.\n",
                  PAIR),
    "skype.json": (json.dumps({"conversations": [{"id": "c", "MessageList": [
        {"from": name, "originalarrivaltime": f"2024-01-15T15:0{n}:05Z", "content": text,
         "messagetype": kind}
        for n, name, kind, text in (
            (3, "Ann", "Event/Call", "<partlist/>"), (1, "Ann", "Text", "q"),
            (2, "Bob", "RichText", '<quote author="x">q</quote><p>so</p>'
             'it&apos;s <a href="http://x">http://x</a> &lt;3'))]}]}),
        [["q", "so\nit's http://x <3"]]),
    "slack.json": (json.dumps([
        {"type": "message", "user": name, "ts": f"170533086{n}.1", "text": text}
        for n, (name, text) in enumerate(
            (("U1", "q &amp; <https://x.y|link>"), ("U2", "a <https://x.y>")))]),
        [["q & link", "a https://x.y"]]),
    "qqnt.json": (json.dumps({"messages": [
        {"timestamp": 1705330860000 + n, "sender": {"name": name}, "type": "type_1",
         "content": {"text": text}, "recalled": text == "x"}
        for n, (name, text) in enumerate((("Ann", "q"), ("Bob", "a"), ("Bob", "x")))]}), PAIR),
    "matrix.json": (json.dumps({"messages": [
        {"type": kind, "sender": name, "content": {"msgtype": "m.text", "body": text},
         "origin_server_ts": 1705330860000 + n}
        for n, (kind, name, text) in enumerate((
            ("m.room.message", "Ann", "q"), ("m.room.message", "Bob", "a"),
            ("m.room.member", "Carl", "x")))]}), PAIR),
    "matrix with more.json": (json.dumps({"messages": [
        {"type": "m.room.message", "sender": name, "origin_server_ts": 1705330860000 + n,
         "content": {"msgtype": kind, "body": text, **more}}
        for n, (name, kind, text, more) in enumerate((
            ("Ann", "m.text", "q", {}), ("Bob", "m.text", "> <@ann> q\n\na", {}),
            ("Bob", "m.image", "1.png", {}), ("Bob", "m.text", "* a", {"m.new_content": {}})))]}),
        PAIR),
    "google.json": (json.dumps({"messages": [
        {"creator": {"name": name}, "text": text,
         "created_date": f"{day}, 2024 at 3:0{n}:05 PM UTC"}
        for n, (name, text, day) in enumerate((
            ("Ann", "q", "Monday, January 15"), ("Bob", "a", "Monday, January 15"),
            ("Bob", "q2", "Tuesday, January 16"), ("Ann", "a2", "Tuesday, January 16")))]}), PAIRS),
    "python.jsonl": ("".join(f"{ {'q': q, 'a': a, 'n': None} }\n" for q, a in PAIRS), PAIRS),
    "spoken.json": (json.dumps([{"personas": [["x"], ["y"]], "dialog": [[0, "q"], [1, "a"]]}]),
                    PAIR),
    "history.jsonl": (lines_of({"history": ["q", "a", "q2"], "response": "a2"}),
                      [["q", "a", "q2", "a2"]]),
    "context.jsonl": (lines_of({"context": ["q", "a", "q2"], "response": "a2"}),
                      [["q", "a", "q2", "a2"]]),
    "an even context.jsonl": (lines_of({"context": ["b", "q"], "response": "a"}),
                              [["", "b", "q", "a"]]),
    "history of messages.jsonl": (
        lines_of({"prompt": "q2", "response": "a2", "history": [
            {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}),
        [["q", "a", "q2", "a2"]]),
    "history of pairs.jsonl": (
        lines_of({"prompt": "q2", "response": "a2", "history": [{"user": "q", "assistant": "a"}]}),
        [["q", "a", "q2", "a2"]]),
    "orca.jsonl": (lines_of(*({"system_prompt": "s", "question": q, "response": a}
                              for q, a in PAIRS)), PAIRS),
    "thoughts.jsonl": (lines_of(
        {"question": "q", "answer": "<think>\nwell\n</think>\n\na"},
        {"question": "q2", "answer": "<|begin_of_thought|> x <|end_of_thought|>\n"
                                     "<|begin_of_solution|>a2<|end_of_solution|>"}), PAIRS),
    "a call behind a text.jsonl": (lines_of({"messages": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": 'a\n<tool_call>\n{"n": 1}'},
        {"role": "tool", "content": "7"}]}), PAIR),
    "responses.jsonl": (lines_of({
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "q"}]}],
        "output": [{"type": "reasoning", "summary": []},
                   {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]}]}),
        PAIR),
    "preferred.jsonl": (lines_of({
        "input": {"messages": [{"role": "user", "content": "q"}]},
        "preferred_output": [{"role": "assistant", "content": "a"}],
        "non_preferred_output": [{"role": "assistant", "content": "b"}]}), PAIR),
    "spam.jsonl": (lines_of(*(
        {"message_id": own, "parent_id": parent, "role": role, "text": text, "rank": rank,
         "deleted": text == "spam"}
        for own, parent, role, text, rank in (
            ("1", None, "prompter", "q", None), ("2", "1", "assistant", "spam", 0),
            ("3", "1", "assistant", "a", 1)))), PAIR),
    "llama 2.jsonl": (lines_of({"text": "<s>[INST] <<SYS>>\ns\n<</SYS>>\n\nq [/INST] a </s>"
                                        "<s>[INST] q2 [/INST] a2 </s>"}), [["q", "a", "q2", "a2"]]),
    "llama 3.jsonl": (lines_of({"text": "<|begin_of_text|>" + "".join(
        f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>"
        for role, text in (("system", "s"), ("user", "q"), ("assistant", "a")))}), PAIR),
    "gemma.jsonl": (lines_of({"text": "<bos><start_of_turn>user\nq<end_of_turn>\n"
                                      "<start_of_turn>model\na<end_of_turn>\n"}), PAIR),
    "alpaca.jsonl": (lines_of({"text": "Below is an instruction.\n\n### Instruction:\nq\n\n"
                                       "### Input:\nmore\n\n### Response:\na"}), [["q more", "a"]]),
    "vicuna.jsonl": (lines_of({"text": "A chat. USER: q ASSISTANT: a</s>USER: q2 ASSISTANT: a2"}),
                     [["q", "a", "q2", "a2"]]),
    "browsed.json": (json.dumps([{"current_node": "3", "mapping": {
        str(n): {"parent": str(n - 1), "message": {
            "author": {"role": role}, "recipient": to, "content": {"parts": [text]}}}
        for n, (role, to, text) in enumerate((
            ("user", "all", "q"), ("assistant", "browser", "search()"), ("tool", "all", "7"),
            ("assistant", "all", "a")))}}]), PAIR),
    "kinds of messages.jsonl": (lines_of({"messages": [
        {"type": kind, "content": text}
        for kind, text in (("system", "s"), ("human", "q"), ("ai", "a"))]}), PAIR),
    "a word.jsonl": (lines_of({"messages": [
        {"role": "user", "content": "what is <tool_call>?"},
        {"role": "assistant", "content": "a"}]}),
        [["what is <tool_call>?", "a"]]),
    "a question in a task.jsonl": (lines_of({
        "instruction": "Question: q?\nAnswer: a.\nIs it right?", "input": "", "output": "yes"}),
        [["Question: q?\nAnswer: a.\nIs it right?", "yes"]]),
    "weighted.jsonl": (lines_of({"messages": [
        {"role": "user", "content": "q"}, {"role": "assistant", "content": "bad", "weight": 0},
        {"role": "user", "content": "q2"}, {"role": "assistant", "content": "a2", "weight": 1}]}),
        [["q", "", "q2", "a2"]]),
    "data.json": (json.dumps({"data": [{"question": q, "answer": a} for q, a in PAIRS]}), PAIRS),
    "out of order.csv": ("conv_id,turn,speaker,utterance\n1,2,B,a\n1,1,A,q\n2,2,B,a2\n2,1,A,q2\n",
                         PAIRS),
    "bold.md": ("**User:** q\n\n**Assistant:** a\n\n**User:** q2\n\n**Assistant:** a2\n", PAIRS),
    "two tabs.tsv": ("q\t\ta\nq2\t\ta2\n", PAIRS),
    "interview.txt": ("INTERVIEWER: q\nGUEST: a\nINTERVIEWER: q2\nGUEST: a2\n",
                      [["q", "a", "q2", "a2"]]),
    "tavern.jsonl": (lines_of(*(
        {"name": name, "is_user": name == "Ann", "mes": text,
         "send_date": f"January 15, 2024 3:0{n}pm"}
        for n, (name, text) in enumerate((("Ann", "q"), ("Bot", "a"))))), PAIR),
    "questions.txt": ("Question: q\nAnswer: a\n\nQuestion: q2\nAnswer: a2\n", PAIRS),
    "问答.txt": ("问题：q\n答案：a\n\n问题：q2\n答案：a2\n", PAIRS),
    "named.tsv": ("utterance\treply\nq\ta\nq2\ta2\n", PAIRS),
    "licences.txt": ("".join(f"{q}\t{a}\tCC-BY 2.0 (France)\n" for q, a in (*PAIRS, ("q3", "a3"))),
                     [*PAIRS, ["q3", "a3"]]),
    "scores.tsv": ("q\ta\t0.5\nq2\ta2\t0.25\n", PAIRS),
    "numbers between.tsv": ("1\tq\t7\ta\n2\tq2\t8\ta2\n", PAIRS),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_each_form_has_its_dialogues(tmp_path, name):
    content, expected = FILES[name]
    found, report = read_bytes(tmp_path, content.encode(), name)
    assert found == expected, report.lines()


def test_a_time_of_an_unknown_language_is_no_head_with_the_text_below(tmp_path):
    content = two("15.1.2024, 3:04 e pasdites - {}: ") + "more\n"
    with pytest.raises(ValueError, match=r"no known kind"):
        read_bytes(tmp_path, content.encode())


TABLES = {
    "labels first": "".join(f"{n % 2}\tsome text {n}\n" for n in range(12)),
    "labels last": "".join(f"some text {n}\t{n % 2}\n" for n in range(12)),
    "numbers": "".join(f"{n}\tsome text {n}\n" for n in range(12)),
    "names": "".join(f"{'Ann' if n % 2 else 'Bob'}\tsome text {n}\n" for n in range(12)),
    "names and bars": "".join(f"{'Ann' if n % 2 else 'Bob'} | some text {n}\n" for n in range(12)),
    "dates": "".join(f"2024-01-{n:02}\tsome text {n}\n" for n in range(12)),
    "times": "".join(f"15:01:{n:02}\t From  Ann : some text {n}\n" for n in range(12)),
    "labels of csv": "".join(f"some text {n},{n % 2}\n" for n in range(12)),
    "numbers of csv": "".join(f"{n},some text {n}\n" for n in range(12)),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_with_one_column_of_talk_has_no_pairs(tmp_path, name):
    with pytest.raises(ValueError, match=r"which are not read as turns|of no known kind"):
        read_bytes(tmp_path, TABLES[name].encode(), "a.csv" if "csv" in name else "a.txt")


def test_few_pairs_again_and_again_are_pairs(tmp_path):
    for pairs in ("hi\thello\nbye\tciao\n", "1\tone\n2\ttwo\n", "who\t1\nwhat\t2\n"):
        assert len(read_bytes(tmp_path, (pairs * 20).encode())[0]) == 40


def test_a_question_with_many_answers_is_no_name(tmp_path):
    content = "".join(f"今天天气真好{'啊吗'[n // 10]}\t答案{n}\n" for n in range(20))
    assert len(read_bytes(tmp_path, content.encode())[0]) == 20


def test_numbers_that_answer_are_answers(tmp_path):
    sums = "".join(f"{n} plus {n}\t{2 * n}\n" for n in range(12))
    assert read_bytes(tmp_path, sums.encode())[0][3] == ["3 plus 3", "6"]


@pytest.mark.parametrize("compress", [bz2.compress, lzma.compress])
def test_further_compressions_are_told_by_their_content(tmp_path, compress):
    assert read_bytes(tmp_path, compress(b"q\ta\nq2\ta2\n"), "a.tsv.z")[0] == PAIRS
    with pytest.raises(ValueError, match="cannot be read to its end"):
        read_bytes(tmp_path, compress(b"q\ta\nq2\ta2\n" * 99)[:-12], "a.tsv.z")


@pytest.mark.parametrize(
    "content, kind",
    [
        (b"<!DOCTYPE html>\n<p>\tq\ta</p>\n", "HTML or XML.*JSON or text"),
        (b"<?xml version='1.0'?>\n<aiml>\tq\ta</aiml>\n", "HTML or XML"),
        (b"1\n00:00:01,000 --> 00:00:02,000\n- Hi.\n", "subtitles.*who speaks"),
        (b"%PDF-1.4\n", "PDF"),
        (b"SQLite format 3\0" + bytes(99), "an SQLite database"),
        (b"\x89PNG\r\n\x1a\n" + bytes(99), r"a picture, .*`towers train images`"),
        (b"\xd0\xcf\x11\xe0" + bytes(99), "a document of Office"),
        (b"7z\xbc\xaf'\x1c" + bytes(99), "an archive"),
    ],
)
def test_files_of_other_programs_are_named(tmp_path, content, kind):
    with pytest.raises(ValueError, match=f"expected dialogues, found {kind}"):
        read_bytes(tmp_path, content)


@pytest.mark.parametrize(
    "content",
    [
        b"2024-01-15 15:04:05 INFO a: x\n2024-01-15 15:04:06 WARN b: y\n",
        "Ann:\n时间: 2024-01-15 15:04\n内容: q\n\nBob:\n时间: 2024-01-15 15:05\n内容: a\n".encode(),
        b"It rained: always.\nWe left.\nThe rest: silence.\n",
        b"dialog\n\"['Hi .' ' How ?']\"\n",
        b"['Hi .' ' How ?']\n" * 3,
    ],
)
def test_what_only_looks_like_talk_is_of_no_known_kind(tmp_path, content):
    with pytest.raises(ValueError, match="lines of no known kind"):
        read_bytes(tmp_path, content)


@pytest.mark.parametrize("name", ["style.css", "a.c"])
def test_source_code_is_no_talk(tmp_path, name):
    with pytest.raises(ValueError, match="expected dialogues, found source code"):
        read_bytes(
            tmp_path, b"body {\n color: red;\n size:\t0;\n color: red;\n size:\t0;\n}\n", name
        )


@pytest.mark.parametrize("train, other", [("train", "eval"), ("training", "testing")])
def test_further_names_of_folders_tell_the_parts(tmp_path, train, other):
    for part in (train, other):
        (tmp_path / part).mkdir()
        (tmp_path / part / "a.tsv").write_text(f"{part}\ta\n")
    parts = {turns[0]: turns.is_held_out for turns in read(tmp_path)[0]}
    assert parts == {train: False, other: True}


def test_messages_without_a_sender_are_told(tmp_path):
    _, report = read_bytes(
        tmp_path, lines_of({"messages": [{"message": "q"}, {"message": "a"}]}).encode()
    )
    assert "messages that name no sender are read as turns, one after the other" in report.lines()


def test_an_answer_that_nobody_asked_for_is_no_blank_turn(tmp_path):
    content = "User: q\nBot: a\n\nBot: hello\nUser: q2\nBot: a2\n"
    dialogues, report = read_bytes(tmp_path, content.encode())
    assert dialogues == [["q", "a"], ["", "hello", "q2", "a2"]] and not report.skipped


def test_thoughts_are_left_out_and_counted(tmp_path):
    content = lines_of(
        {"question": "q", "answer": "<think>x</think>a"}, {"question": "q2", "answer": "a2"}
    )
    assert read_bytes(tmp_path, content.encode())[1].repaired == {
        "turns without what was thought before them": 1
    }


@pytest.mark.parametrize(
    "text, is_one",
    [("이 메시지는 삭제되었습니다.", True), ("IMG 1.jpg (file attached)", True), ("see it", False),
     ("it is 3.50 (or 4)", False), ("ok (sure)", False), ("[图片]", True),
     ("☎ Missed call", True), ("☎ Call time 0:35", True), ("☎ 通話時間 1:00:35", True),
     ("☎ 555 1234", False), ("☎ me at 9:30 or at 10!", False), ("Voice call, 3 min", True),
     ("Video call, 1 hr 2 min", True), ("Missed group video call", True),
     ("Voice call, No answer", True), ("Sprachanruf, 3 Min.", True), ("video call?", False),
     ("Video call, maybe at 3", False), ("See you, 3 min", False),
     ("This message was deleted by admin Ann", True), ("You deleted this message as admin", True),
     ("Este mensaje fue eliminado.", True), ("Acest mesaj a fost șters", True),
     ("Delete this message as admin", False), ("You missed a video chat", True)],
)  # fmt: skip
def test_notices_are_told_from_texts(text, is_one):
    assert is_notice(text) == is_one
