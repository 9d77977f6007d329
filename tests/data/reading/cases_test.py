"""Small inputs that once were misread, in a folder beside the repository."""
# ruff: noqa: RUF001 - a full-width comma.

import pytest

from tests.data.reading.helpers import read
from tests.paths import CORPORA

CASES = CORPORA.parent / "cases" / "chats"
SECOND = {  # The second dialogue of each file.
    "conversations.yml": ["你好1", "你好，我是机器人1"],
    "dolly.jsonl": ["q 1 ctx 1", "a 1"],
    "dups.tsv": ["question 1", "answer 1"],
    "gemini.jsonl": ["q 1", "a 1"],
    "hf_dailydialog.jsonl": ["hello 1", "hi 1", "how are you 1", "fine 1"],
    "lccc.jsonl": ["你好 1", "你 好 呀 1"],
    "speaker_turns.jsonl": ["q 1 more 1", "a 1", "thanks 1"],
}
OTHERS = {  # Files, with the numbers of their dialogues and of the turns of each.
    "id_q_a.tsv": (200, 2),
    "label_first.txt": (30, 4),
    "dialogues_text.txt": (30, 4),
    "qingyun.csv": (50, 2),
    "weibo": (50, 2),
    "user_words_chat.tsv": (160, 2),
}


@pytest.mark.skipif(not CASES.is_dir(), reason=f"{CASES} is not here")
@pytest.mark.parametrize("name", [*SECOND, *OTHERS])
def test_each_case_is_read_rightly(name):
    if name.endswith(".yml"):
        pytest.importorskip("yaml")
    dialogues, _ = read(CASES / name)
    if name in SECOND:
        assert [text.lower() for text in dialogues[1]] == SECOND[name]
    else:
        assert (len(dialogues), *{*map(len, dialogues)}) == OTHERS[name]
