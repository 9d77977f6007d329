"""Every reader, whatever the bytes: what it reads stands in the file, and the bot alone answers.

The slow tier tries many more examples of the same laws.
"""

import csv
import io
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.reading.helpers import read_bytes
from towers.data.reading.dialogues import KINDS
from towers.data.reading.layout import Layout

FEW, MANY = 6, 400
LINES = "movie_lines.txt"
# A small file of each kind; every text in it is a word of its own.
FILES = {
    "cornell": "u0 +++$+++ u2 +++$+++ m0 +++$+++ ['L1', 'L2']\n" * 3,
    "json_lines": '{"messages": [{"role": "user", "content": "qa1"}, '
    '{"role": "assistant", "content": "qb2"}]}\n["qa3", "qb4"]\n'
    '{"question": "qa5", "answer": "qb6"}\n',
    "conv": "E\nM qa1\nM qb2\nE\nM qa3/qa4\nM qb5\n",
    "speakers": "A|qa1|sd\nB|qb2|sd\nA|qa3|%\n",
    "whatsapp": "[31.12.23, 22:03:11] Ann: qa1\n[31.12.23, 22:03:40] Bob: qb2\nqb3\n" * 2,
    "qq": "2019-03-04 12:33:01 Ann\nqa1\n\n2019-03-04 12:33:09 Bob(12)\nqb2\n\n" * 2,
    "line": "2021/01/01(Fri)\n10:00\tAnn\tqa1\n10:01\tBob\tqb2\n10:02\tBob\tqb3\n",
    "marked": "User: qa1\nBot: qb2\n\n### Human: qa3\n### Assistant: qb4\n",
    "numbered": "1 your persona: qc1\n2 qa1\tqb2\t\tx|y\n3 qa3\tqb4\n1 qa5\tqb6\n",
    "paired": "qa1\nqa2\nqa3\n",
    "tsv": "1\tqa1\tqb2\n0\tqa1\tqb3\n1\tqa4\tqb5\n",
    "csv": 'sender,text,time\nAnn,qa1,2020-01-01 10:00\nBob,"qb2, qb3",2020-01-01 10:01\n',
    "json_array": '[\n {"question": "qa1", "answer": "qb2"},\n {"turns": ["qa3", "qb4"]}\n]\n',
    "parquet": "PAR1 qa1 qb2 PAR1",
    "sms": '<smses count="3">\n<sms address="1" date="1705330860000" type="1" body="qa1" />\n'
    '<sms address="1" date="1705330870000" type="2" body="qb2" />\n</smses>\n',
    "yaml": "conversations:\n- - qa1\n  - qb2\n- - qa3\n  - qb4\n",
}
BESIDE = {"cornell": (LINES, "L1 +++$+++ u0 +++$+++ m0 +++$+++ A +++$+++ qa1\n"
                             "L2 +++$+++ u2 +++$+++ m0 +++$+++ B +++$+++ qb2\n"),
          "paired": ("chat.dec", "qb1\nqb2\nqb3\n")}  # fmt: skip
NAMES = {"cornell": "movie_conversations.txt", "paired": "chat.enc", "yaml": "chat.yml"}
MARKS = b"E\n;\n;M ;\t;|;\r\n;\0;{;};[;];\";,;: ;';\\;<;role;assistant;user;: null;1 ;---;#".split(
    b";"
)
PIECES = st.binary(max_size=6) | st.sampled_from(MARKS)
CHANGES = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40), PIECES), max_size=5)


def changed(content, changes):
    """Returns bytes in which slices (from, how many) are replaced by others."""
    for start, count, piece in changes:
        start %= len(content) + 1
        content = content[:start] + piece + content[start + count :]
    return content


def check_words(folder, kind, changes, chosen):
    """What a changed file gives stands in it, or an error names the file."""
    content = changed(FILES[kind].encode(), changes)
    other_name, other = BESIDE.get(kind, ("other.bin", ""))
    (folder / other_name).write_text(other, encoding="utf-8")
    try:
        dialogues, _ = read_bytes(folder, content, NAMES.get(kind, "chat.txt"), kind=chosen)
    except ValueError as error:
        assert str(folder) in str(error)
        return
    text = content.decode("utf-8", "ignore") + content.decode("utf-16", "ignore") + other
    plain = re.sub(r"[\ufffd\ud800-\udfff]", "", text)
    for turns in dialogues:
        for word in re.findall(r"q[ab]\d", " ".join(turns)):
            assert word in plain
        assert kind == "parquet" or not any("\0" in turn for turn in turns)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_reader_reads_stands_in_the_file(tmp_path_factory, kind):
    try_changes(tmp_path_factory.mktemp(kind), kind, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_reader_reads_stands_in_the_file_in_many_examples(tmp_path_factory, kind):
    try_changes(tmp_path_factory.mktemp(kind), kind, MANY)


def try_changes(folder, kind, number):
    if kind == "yaml":
        pytest.importorskip("yaml")

    @given(changes=CHANGES, chosen=st.sampled_from([kind, "auto"]))
    @settings(max_examples=number, deadline=None, derandomize=number == FEW)
    def law(changes, chosen):
        check_words(folder, kind, changes, chosen)

    law()


TOOLS, USERS, BOTS = ("tool", "system"), ("user", "human"), ("assistant", "bot")
MESSAGES = st.tuples(  # After a user's message, `system` may be the bot.
    st.lists(st.just("system"), max_size=2),
    st.lists(st.sampled_from(["tool", *USERS, *BOTS]), min_size=1, max_size=9),
).map(lambda parts: [*parts[0], *parts[1]])


def as_rows(messages):
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["dialogue_id", "role", "content"])
    writer.writerows(("7", role, text) for role, text in messages)
    return table.getvalue()


def as_json(role_key, text_key, list_key):
    def write(messages):
        found = [{role_key: role, text_key: text} for role, text in messages]
        return json.dumps({list_key: found}) + "\n"

    return write


def as_tree(messages):
    records = (
        {"message_id": str(n), "parent_id": str(n - 1) if n else None, "role": role, "text": text}
        for n, (role, text) in enumerate(messages)
    )
    return "".join(json.dumps(record) + "\n" for record in records)


FORMS = {
    "openai.jsonl": as_json("role", "content", "messages"),
    "sharegpt.json": as_json("from", "value", "conversations"),
    "gemini.jsonl": as_json("role", "parts", "contents"),
    "chosen.jsonl": as_json("role", "content", "chosen"),
    "spoken.jsonl": as_json("speaker", "text", "turns"),
    "pretty.json": lambda messages: json.dumps(
        [{"dialog": [{"role": role, "text": text} for role, text in messages]}], indent=1
    ),
    "rows.csv": as_rows,
    "rows.jsonl": lambda messages: "".join(
        json.dumps({"dialogue_id": 7, "speaker": role, "utterance": text}) + "\n"
        for role, text in messages
    ),
    "tree.jsonl": as_tree,
    "marked.txt": lambda messages: "".join(f"{role}: {text}\n" for role, text in messages),
    "template.jsonl": lambda messages: json.dumps(
        {"text": "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages)}
    ) + "\n",
    "whatsapp.txt": lambda messages: "".join(
        f"[31.12.23, 22:03:{number:02}] {'Me' if role in BOTS else 'Ann'}: {text}\n"
        for number, (role, text) in enumerate(messages) if role not in TOOLS
    ),
}  # fmt: skip


def check_sides(folder, name, roles):
    """The odd turns hold what bots say alone, and no text is lost, or an error says what is wrong.

    It names the file, or the senders that there are in place of `me`.
    """
    said = [(role, f"w{number}") for number, role in enumerate(roles)]
    layout = Layout(me="Me" if name == "whatsapp.txt" else "")
    try:
        dialogues, _ = read_bytes(folder, FORMS[name](said).encode(), name, layout=layout)
    except ValueError as error:
        assert str(folder) in str(error) or "Field me must be one of Ann." in str(error)
        return
    heard = set()
    for turns in dialogues:
        if not getattr(turns, "has_roles", False):
            assert len(turns) < 2
            continue
        for place, turn in enumerate(turns):
            for word in turn.split():
                role = said[int(word[1:])][0]
                assert role in (BOTS if place % 2 else USERS), (turns, said)
                heard.add(word)
    assert not dialogues or heard == {text for role, text in said if role not in TOOLS}


@pytest.mark.parametrize("name", FORMS)
def test_where_roles_are_known_only_the_bot_answers(tmp_path_factory, name):
    try_roles(tmp_path_factory.mktemp("roles"), name, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_where_roles_are_known_only_the_bot_answers_in_many_examples(tmp_path_factory, name):
    try_roles(tmp_path_factory.mktemp("roles"), name, MANY)


def try_roles(folder, name, number):
    @given(roles=MESSAGES)
    @settings(max_examples=number, deadline=None, derandomize=number == FEW)
    def law(roles):
        check_sides(folder, name, roles)

    law()
