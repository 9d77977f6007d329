"""Nothing that a command prints is obeyed by the terminal."""

import ast
import sys

import pytest

from tests.paths import ROOT
from towers.scripts.main import main
from towers.scripts.shown import printable, show, table

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\x7f\u202eevil"
MAY_PRINT = {"shown.py", "bootstrap.py", "private_network.py"}


@pytest.mark.parametrize("number", [*range(32), *range(127, 160), 0x202E, 0x2066, 0xD83D])
def test_control_characters_are_shown_as_what_they_are(number):
    text = printable(f"a{chr(number)}b")
    assert text == (
        f"a{chr(number)}b" if chr(number) in "\n\t" else ascii(f"a{chr(number)}b")[1:-1]
    )
    text.encode("utf-8")


def test_other_text_is_printed_as_it_is(capsys):
    show("naïve 你好 🙂\tand", 3, file=sys.stderr)
    assert capsys.readouterr().err == "naïve 你好 🙂\tand 3\n"


def test_commands_print_through_one_function():
    for path in sorted((ROOT / "scripts").rglob("*.py")):
        if path.name in MAY_PRINT or "programs" in path.parts:
            continue
        names = [
            node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)
        ]
        assert "print" not in names, path


def is_clean(text):
    return text == printable(text)


def test_hostile_names_and_texts_reach_no_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = "".join(f"E\nM {HOSTILE} {i}\nM {HOSTILE} answer {i % 3}\n" for i in range(40))
    (tmp_path / f"{HOSTILE}.conv").write_text(text)
    prepare = ["prepare", "chatbot", "--language", "en", "--processes", "1"]
    assert main([*prepare, "--data", f"{HOSTILE}.conv", "--set", "held_out=0.3"]) == 0
    for command in (
        [*prepare, "--data", f"{HOSTILE}.none"],
        ["evaluate", HOSTILE],
        ["train", "shapes", "--set", f"optimizer={HOSTILE}"],
        ["download", HOSTILE],
        ["train", HOSTILE],
    ):
        assert main(command) == 2, command
    with pytest.raises(SystemExit):
        main([HOSTILE])
    found = capsys.readouterr()
    assert "\\x1b" in found.out + found.err
    assert is_clean(found.out) and is_clean(found.err)


def test_columns_are_aligned():
    assert table([("a", "long", "x"), ("longer", "b", "")]) == ["a       long  x", "longer  b"]
