"""The commands of the guides run as they are typed, one after the other, on small data sets."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data.image_files.pictures import write_pictures
from tests.documents_test import BLOCK, PAGES
from tests.paths import ROOT
from tests.programs import run
from tests.small_data import (
    write_chats,
    write_data_sets,
    write_dialogues,
    write_exports,
    write_idx,
    write_language_text,
    write_texts,
)

# What a command begins with or holds, and why it does not run here.
LEFT_OUT = {
    "towers download": "it needs the Internet; tests/data/fetching",
    "--gpus": "it needs GPUs",
    "--cluster": "it needs several machines",
    "docker ": "it needs Docker",
    "towers serve": "it serves until it is stopped; tests/scripts/commands/serve_test.py",
    "curl ": "it needs a server; tests/scripts/commands/serve_test.py",
    "tensorboard ": "it serves until it is stopped; tests/scripts/tensorboard_test.py",
    "scripts/bootstrap.py": "it needs a clone; tests/installation_test.py",
    "source ": "it needs a clone; tests/installation_test.py",
    "pip install": "it needs a clone; tests/installation_test.py",
}
HOURS = 3600 * 3
DIGEST = re.compile(r"[0-9a-f]{32}-\d")


def commands_of(page: str) -> list[str]:
    """Returns the shell commands of a page that run here, in order."""
    blocks = [block for block in BLOCK.finditer(PAGES[page]) if not block["reason"]]
    lines = [
        line.strip().removeprefix("$ ")
        for block in blocks
        if block["language"] in ("sh", "console")
        for line in block["code"].replace("\\\n", " ").splitlines()
        if block["language"] == "sh" or line.startswith("$ ")
    ]
    return [line for line in lines if line and not any(part in line for part in LEFT_OUT)]


def printed_by(page: str) -> dict[str, set[str]]:
    """Returns the lines that a page shows of each command's output, without shortened ones."""
    blocks = [
        block["code"] for block in BLOCK.finditer(PAGES[page]) if block["language"] == "console"
    ]
    sessions = [code.removeprefix("$ ").splitlines() for code in blocks]
    return {
        command: {DIGEST.sub("", line) for line in lines if "..." not in line}
        for command, *lines in sessions
    }


GUIDES = [page for page in PAGES if page.startswith("docs/guides/") and commands_of(page)]


@pytest.mark.slow
@pytest.mark.parametrize("page", GUIDES)
def test_the_commands_of_a_guide_run_as_typed(page, tmp_path):
    (tmp_path / "datasets").mkdir()
    write_data_sets(tmp_path / "datasets")
    write_idx(tmp_path / "my_images")
    write_language_text(tmp_path / "my_text", "{}.txt")
    write_dialogues(tmp_path / "my.conv", "zh", 6000)
    write_texts(tmp_path / "my_texts")
    write_chats(tmp_path)
    write_exports(tmp_path)
    (tmp_path / "words.txt").write_text("机器人\n下雨天\n", encoding="utf-8")
    write_labelled_pictures(tmp_path / "my_pictures")
    (tmp_path / "photos").symlink_to(tmp_path / "my_pictures" / "blue")
    shutil.copy(next((tmp_path / "photos").glob("*.png")), tmp_path / "photo.png")
    for block in BLOCK.finditer(PAGES[page]):
        if block["language"] == "toml":
            (tmp_path / "small.toml").write_text(block["code"], encoding="utf-8")
    shown = printed_by(page)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    for command in commands_of(page):
        options = {
            "cwd": tmp_path,
            "env": environment,
            "stdin": subprocess.DEVNULL,
            "patience": HOURS,
        }
        output = run(["bash", "-c", command], **options)
        assert "Traceback" not in output, output
        printed = {DIGEST.sub("", line) for line in output.splitlines()}
        assert shown.get(command, set()) <= printed, output


def write_labelled_pictures(folder: Path) -> None:
    """Writes pictures in class folders, and a table of the same ones."""
    write_pictures(folder, broken=False)
    paths = [path.relative_to(folder) for path in sorted(folder.glob("*/*"))]
    rows = ["path,label", *(f"{path},{path.parent}" for path in paths)]
    (folder / "table.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def test_what_is_left_out_stands_in_a_guide():
    text = "".join(text for page, text in PAGES.items() if page.startswith("docs/guides/"))
    assert [part for part in LEFT_OUT if part not in text] == []
