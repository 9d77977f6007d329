"""Wrong inputs of every command and of every kind of file, to be refused or to work."""

import argparse
import json

import numpy as np

from tests.small_data import write_data_sets
from towers.scripts.main import COMMANDS, build_parser, main
from towers.scripts.training.catalogue import find_recipe, recipe_names

NOWHERE = "no/such/place"
LONG = "9" * 400
NUMBERS = ("", " ", "0", "-1", "1.5", "x", "1e3", "nan", "inf", "0x10", "²", LONG, "1,2")
TEXTS = ("", "nonsense", "\x1b[2J")
# What has to stand behind the options of a command, so that it fails on them alone.
PLACES = {
    "train": ["mnist", "--data", NOWHERE], "prepare": ["chatbot", "--data", NOWHERE],
    "benchmark": ["mnist", "--data", NOWHERE], "download": ["mnist", "--url", "http://127.0.0.1:9/"],
    "evaluate": [NOWHERE], "chat": [NOWHERE], "serve": [NOWHERE], "generate": [NOWHERE],
    "export": [NOWHERE], "launch": [], "recipes": [NOWHERE], "devices": ["--nonsense"],
}  # fmt: skip
BEHIND = {"launch": ["--", "evaluate"]}  # What is given after the options.


def option_inputs():
    """Yields (name, arguments) for every option of every command with every wrong value."""
    for command in PLACES:
        (actions,) = [
            action.choices[command]._actions
            for action in build_parser([command])._actions
            if isinstance(action, argparse._SubParsersAction)
        ]
        for action in actions:
            if not action.option_strings or action.nargs == 0:
                continue
            flag = action.option_strings[0]
            values = NUMBERS if action.type else TEXTS
            for value in values:
                arguments = [command, *PLACES[command], f"{flag}={value}", *BEHIND.get(command, [])]
                yield f"{command} {flag}={value[:9]!r}", arguments


def field_inputs():
    """Yields (name, arguments) for every field of every recipe with wrong values."""
    for recipe in recipe_names():
        for field, default in vars(find_recipe(recipe).fields).items():
            values = ("", "x", "nan", "-1e400", LONG) if not isinstance(default, str) else ("",)
            for value in values:
                arguments = ["train", recipe, "--data", NOWHERE, "--set", f"{field}={value}"]
                yield f"{recipe} {field}={value[:9]!r}", arguments


TRAIN = ["train", "shapes", "--steps", "1"]
CHAT = ["chat", "runs/chatbot"]
CONTRADICTIONS = {
    "steps and epochs": [*TRAIN, "--epochs", "2"],
    "steps and epochs by --set": [*TRAIN, "--set", "epochs=2"],
    "epochs twice": ["train", "shapes", "--epochs", "2", "--set", "epochs=3"],
    "batch size twice": [*TRAIN, "--batch-size", "5", "--set", "batch_size=6"],
    "language twice": ["prepare", "chatbot", "--language", "en", "--set", "language=zh"],
    "memory without a GPU": [*TRAIN, "--gpu-memory", "1"],
    "virtual without a GPU": [*TRAIN, "--virtual", "--towers", "2"],
    "no run directory": [*TRAIN, "--run-dir", ""],
    "blank run directory": [*TRAIN, "--run-dir", "  "],
    "no data": ["train", "mnist", "--steps", "1", "--data", ""],
    "no dialogue file": ["prepare", "chatbot", "--data", ""],
    "no output": ["export", "runs/shapes", "--output", ""],
    "no log folder": ["launch", "--log-dir", "", "--", *TRAIN],
    "no run": ["evaluate", ""],
    "no run to talk to": ["chat", ""],
    "no recipe": ["train", ""],
    "no url": ["download", "mnist", "--url", ""],
    "not a url": ["download", "mnist", "--url", "nonsense"],
    "url of files": ["download", "mnist", "--url", "file:///etc/"],
    "url of nobody": ["download", "mnist", "--url", "http://127.0.0.1:9/"],
    "url without a host": ["download", "mnist", "--url", "http://"],
    "url with a bad port": ["download", "mnist", "--url", "http://a:b/"],
    "url with blanks": ["download", "mnist", "--url", "http://a b/"],
    "download into a file": ["download", "mnist", "--data", "a_file"],
    "too many towers": [*TRAIN, "--towers", "1000000"],
    "too many micro-batches": [*TRAIN, "--accumulate", "1000000000"],
    "too many processes": ["launch", "--processes", "1000000", "--", *TRAIN],
    "too large a batch": [*TRAIN, "--batch-size", "1000000000000000000"],
    "chat of an image network": ["chat", "runs/shapes"],
    "generation of an image network": ["generate", "runs/shapes", "--prompt", "a"],
    "serving an image network": ["serve", "runs/shapes"],
    "decoding of an image network": ["export", "runs/shapes", "--output", "new", "--beam", "2"],
    "preparation of images": ["prepare", "shapes"],
    "launch of nothing": ["launch", "--", "train"],
    "launch of itself": ["launch", "--", "launch", "--", *TRAIN],
    "evaluation of a file": ["evaluate", "a_file"],
    "evaluation of the root": ["evaluate", "/"],
    "run in a file": [*TRAIN, "--run-dir", "a_file/run"],
    "null in a path": [*TRAIN, "--run-dir", "a\x00b"],
    "null in data": ["train", "mnist", "--steps", "1", "--data", "a\x00b"],
    "very long path": [*TRAIN, "--run-dir", "a" * 5000],
    "very long data": ["train", "mnist", "--steps", "1", "--data", "a" * 5000],
    "field of nothing": [*TRAIN, "--set", "=3"],
    "field and nothing": [*TRAIN, "--set", "momentum"],
    "private field": [*TRAIN, "--set", "__class__=3"],
    "evaluation with another size": ["evaluate", "runs/shapes", "--set", "hidden_size=5"],
    "evaluation of another part": ["evaluate", "runs/shapes", "--data", NOWHERE],
    "seed of a preparation": ["prepare", "chatbot", "--seed", "1"],
    "port in use": ["serve", "runs/shapes", "--port", "99999"],
    "codec": ["prepare", "chatbot", "--data", "data/pairs.conv", "--encoding", "klingon"],
    "codec of bytes": ["prepare", "chatbot", "--data", "data/pairs.conv", "--encoding", "base64"],
    "kind": ["prepare", "chatbot", "--data", "data/pairs.conv", "--kind", "klingon"],
    "wrong kind": ["prepare", "chatbot", "--data", "data/pairs.conv", "--kind", "json_lines"],
}


def spoil_text(path, damage):
    """Damages a file; returns False if the damage would change nothing."""
    content = path.read_bytes()
    changed = {
        "empty": b"", "cut": content[: len(content) // 2], "zeros": bytes(len(content)),
        "not UTF-8": b"\xff\xfe" + content, "null": b"\x00" + content, "object": b"{}",
        "list": b"[1, 2]", "number": b"1", "deep": b"[" * 100_000, "text": b"nonsense\n",
        "twice": content + content, "end": content[:-1],
        "NaN": content.replace(b"4", b"NaN"), "one long line": b"x" * 3_000_000,
    }.get(damage)  # fmt: skip
    if damage in ("gone", "folder"):
        path.unlink()
        if damage == "folder":
            path.mkdir()
        return True
    if changed == content:
        return False
    path.write_bytes(changed)
    return True


DAMAGES = (
    "empty", "cut", "zeros", "not UTF-8", "null", "object", "list", "number", "deep", "text",
    "twice", "end", "NaN", "one long line", "gone", "folder",
)  # fmt: skip


def make_place(folder):
    """Makes runs, data sets and dialogues in a folder, which is the working folder."""
    (folder / "data").mkdir()
    write_data_sets(folder / "data")
    (folder / "a_file").write_text("mine")
    tiny = ["--steps", "1", "--batch-size", "4", "--set"]
    shapes = ["train", "shapes", *tiny, "hidden_size=4", "--set", "filters=2,3"]
    assert main([*shapes, "--run-dir", "runs/shapes"]) == 0
    assert main(["train", "stories", *tiny, "hidden_size=4", "--run-dir", "runs/stories"]) == 0
    chatbot = ["train", "chatbot", *tiny, "hidden_size=8", "--set", "embedding_size=8"]
    assert main([*chatbot, "--data", "data/pairs.conv", "--run-dir", "runs/chatbot"]) == 0
    # As a stranger's run, whose checkpoints do not say what ran: its record is what it is.
    for run in ("shapes", "stories", "chatbot"):
        forget_record(folder / "runs" / run)


def forget_record(run):
    """Removes the copy of run.json from the checkpoints of a run."""
    for path in (run / "checkpoints").iterdir():
        with np.load(path) as file:
            arrays = dict(file)
        manifest = json.loads(arrays["manifest"].tobytes())
        del manifest["state"]["run"]
        arrays["manifest"] = np.frombuffer(json.dumps(manifest).encode(), np.uint8)
        with path.open("wb") as file:
            np.savez(file, **arrays)


READERS = {
    "shapes": (["evaluate", "runs/shapes"], ["export", "runs/shapes", "--output", "new"]),
    "stories": (["generate", "runs/stories", "--prompt", "a"], ["evaluate", "runs/stories"]),
    "chatbot": (["chat", "runs/chatbot", "--ask", "hi"],),
}


def file_inputs(folder):
    """Yields (name, file, damage, arguments) for every file of runs and data sets."""
    for run, commands in READERS.items():
        for path in sorted((folder / "runs" / run).rglob("*")):
            if path.is_dir() or "summaries" in path.parts:
                continue
            for damage in DAMAGES:
                for command in commands:
                    yield f"{path.relative_to(folder)}: {damage}", path, damage, command
    for name, recipe in (("mnist", "mnist"), ("ptb", "ptb_small")):
        for path in sorted((folder / "data" / name).iterdir()):
            for damage in DAMAGES:
                command = ["train", recipe, "--steps", "1", "--data", f"data/{name}"]
                yield f"{path.relative_to(folder)}: {damage}", path, damage, command
    for damage in DAMAGES:
        path = folder / "data" / "pairs.conv"
        command = ["prepare", "chatbot", "--processes", "1", "--data", "data/pairs.conv"]
        yield f"pairs.conv: {damage}", path, damage, command


RECORD_CHANGES = {
    "recipe": ("", "klingon", 3, None, ["shapes"], "../../etc/passwd", "\x1b[2J"),
    "fields": ({}, None, [], {"batch_size": "x"}, {"batch_size": 4, "klingon": 1}),
    "seed": ("x", -1, None, 2**70, 1.5),
    "precision": ("float8", None, 3),
    "starts": (None, 3, {}, "x", ["x"], [{}]),
    "best_metric": (3, ["x"]),
    "data": (3, "x", [3], {}, [NOWHERE]),
    "batch_norm": (None, 3),
    "updates": ("klingon", None),
    "about": (3, "x", ["x"], {"pairs": "x"}, {"context": -1}, {"files": 3}, {"kinds": [3]}),
}


def record_inputs(folder):
    """Yields (name, file, content, arguments) of records that a stranger wrote."""
    path = folder / "runs" / "shapes" / "run.json"
    record = json.loads(path.read_text())
    for name, values in RECORD_CHANGES.items():
        for value in values:
            content = json.dumps({**record, name: value})
            for command in (READERS["shapes"][0], [*TRAIN, "--run-dir", "runs/shapes"]):
                yield f"record: {name}={value!r} {command[0]}", path, content, command
    for name, value in record["fields"].items():
        for wrong in (None, "x", -1, [], {}, 1e400, 10**30):
            content = json.dumps({**record, "fields": {**record["fields"], name: wrong}})
            if wrong != value:
                yield f"record: {name}={wrong!r}", path, content, READERS["shapes"][0]


assert set(PLACES) <= set(COMMANDS)
