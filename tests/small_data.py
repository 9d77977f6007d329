"""Small data sets in the formats of the published ones."""

import csv
import datetime
import gzip
import json
import struct
from pathlib import Path

import numpy as np

from tests.paths import ROOT
from towers.data.samples import stories
from towers.data.samples.conversations import conversations


def write_data_sets(folder: Path) -> None:
    """Writes the data sets into folders of their names, and dialogues into `pairs.conv`."""
    for name in ("mnist", "fashion_mnist"):
        write_idx(folder / name)
    (folder / "cifar10").mkdir()
    for path in sorted((ROOT / "data" / "samples" / "shapes_cifar10").iterdir()):
        (folder / "cifar10" / path.name).symlink_to(path)
    write_language_text(folder / "ptb", "ptb.{}.txt")
    write_dialogues(folder / "pairs.conv", "zh")


def write_idx(folder: Path) -> None:
    """Writes 60 images of noise for either split, as MNIST's four files."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for split in ("train", "t10k"):
        images = random.integers(0, 256, (60, 28, 28), np.uint8)
        labels = random.integers(0, 10, 60).astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape)
            with gzip.open(folder / f"{split}-{kind}-ubyte.gz", "wb") as file:
                file.write(header + array.tobytes())


def write_language_text(folder: Path, name: str) -> None:
    """Writes 120 sentences for each part, in files of this name."""
    folder.mkdir()
    for part in ("train", "validation", "test"):
        lines = stories.text(part).splitlines(keepends=True)[:120]
        (folder / name.format(part)).write_text("".join(lines))


def write_dialogues(path: Path, language: str, number: int = 300) -> None:
    """Writes dialogues as `E` and `M` lines."""
    dialogues = conversations(language, "train")[:number]
    text = "".join("E\n" + "".join(f"M {turn}\n" for turn in turns) for turns in dialogues)
    path.write_text(text, encoding="utf-8")


def write_texts(folder: Path) -> None:
    """Writes a text as lines and as JSON Lines."""
    folder.mkdir()
    lines = stories.text("train").splitlines()[:2000]
    (folder / "a.txt").write_text("\n".join(lines[:1000]) + "\n")
    records = (json.dumps({"text": line}) for line in lines[1000:])
    (folder / "b.jsonl").write_text("\n".join(records) + "\n")


def write_chats(folder: Path) -> None:
    """Writes 300 dialogues as messages, and as two columns with names and with others."""
    dialogues = conversations("en", "train")[:300]
    with (folder / "chats.jsonl").open("w") as file:
        for turns in dialogues:
            roles = ("user", "assistant")
            messages = [
                {"role": roles[place % 2], "content": turn} for place, turn in enumerate(turns)
            ]
            file.write(json.dumps({"messages": messages}) + "\n")
    for name, header in (("pairs.csv", ("question", "answer")), ("talks.csv", ("said", "replied"))):
        write_rows(folder / name, [header, *(turns[:2] for turns in dialogues)])


def write_exports(folder: Path) -> None:
    """Writes messages of two people as programs export them, under the names in the guide."""
    begin = datetime.datetime(2026, 3, 1, 9, tzinfo=datetime.timezone.utc)
    times = [begin + datetime.timedelta(hours=n // 4 * 8, minutes=n) for n in range(160)]
    said = ("what time tomorrow", "at eight", "did you eat", "not yet", "where are you", "at home")
    texts = [f"{said[n % 6]} {n % 31}" for n in range(160)]
    rows = list(zip(times, ("Ann", "NAME") * 80, texts, strict=True))
    write_rows(folder / "log.csv", [("at", "who", "said"), *rows])
    said = ("明天几点", "八点", "吃了吗", "还没", "周末去哪", "去公园")
    wechat = [("localId", "TalkerId", "Type", "IsSender", "CreateTime", "StrContent")]
    for n, time in enumerate(times):
        kind, text = (3, "<img/>") if n % 20 == 5 else (1, f"{said[n % 6]}{n % 31}")
        wechat.append((n, "wxid_a", kind, n % 2, int(time.timestamp()), text))
    write_rows(folder / "messages.csv", wechat)
    lines = [f"{time:%Y-%m-%d %H:%M:%S} {who}\n{text}\n" for time, who, text in rows]
    (folder / "record.txt").write_text("\n".join(lines))
    lines = ["01/03/2026, 08:59 - Messages and calls are end-to-end encrypted."]
    for n, (time, who, text) in enumerate(rows):
        name = who.replace("NAME", "Bob")
        lines.append(
            f"{time:%d/%m/%Y, %H:%M} - {name}: {text if n % 20 != 5 else '<Media omitted>'}"
        )
    (folder / "_chat.txt").write_text("\n".join(lines))
    messages = [
        {"type": "message", "date": time.isoformat()[:19], "from": who, "text": text}
        for time, who, text in rows
    ]
    chat = {"name": "Ann", "type": "personal_chat", "messages": messages}
    (folder / "result.json").write_text(json.dumps(chat))


def write_rows(path: Path, rows: list[tuple[object, ...]]) -> None:
    """Writes a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
