"""A day on GPUs is tried on CPUs: each slice leaves its JSON, and the page says what is missing."""

import json
import os
import shutil
import sys

import pytest

from benchmarks import gpu_day
from tests.paths import ROOT
from tests.programs import run

NAMES = list(gpu_day.slices(0, ROOT, small=True))


def test_a_slice_leaves_its_json_and_the_page_says_what_is_missing(tmp_path):
    run(["bash", "benchmarks/gpu_day.sh", str(tmp_path), "--small", "laws"], cwd=ROOT)
    (row,) = json.loads((tmp_path / "laws.json").read_text())["rows"]
    assert row["exit_code"] == 0
    assert sum(line.startswith("ok | ") for line in row["output"]) == 5
    page = (tmp_path / "page.md").read_text()
    missing = page.partition("## Missing")[2].split("\n")
    assert {f"- {name}: not run" for name in NAMES} - {*missing} == {"- laws: not run"}
    assert "- laws: it ran without a GPU" in missing or "GPUs: none" not in page


def test_nothing_is_measured_without_an_installation(tmp_path):
    copied = tmp_path / "benchmarks/gpu_day.sh"
    copied.parent.mkdir()
    shutil.copy(ROOT / "benchmarks/gpu_day.sh", copied)
    (tmp_path / "benchmarks/gpu_day.py").write_text("print('measured')")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/bootstrap.py").write_text("raise SystemExit(2)")
    (tmp_path / "towers.py").touch()  # The sources alone are no installation.
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    python.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    written = run(["bash", copied, "folder"], code=2, env={**os.environ, "PATH": path})
    assert "measured" not in written


@pytest.mark.parametrize(
    ("program", "code", "missing"),
    [
        (["-c", "print(7); raise SystemExit(3)"], 3, "failed"),
        (["-c", "import time; print(7, flush=True); time.sleep(60)"], None, "did not end in time"),
    ],
)
def test_what_fails_or_takes_too_long_is_missing(program, code, missing, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_day, "SECONDS", 1.0)
    command = [gpu_day.PYTHON[0], *program]
    assert not gpu_day.run_slice("laws", [command], ["H100"], tmp_path)
    (row,) = json.loads((tmp_path / "laws.json").read_text())["rows"]
    assert row["exit_code"] == code and row["output"] == ["7"]
    page = gpu_day.page({"laws": [command]}, tmp_path)
    assert "GPUs: H100" in page and page.rstrip().endswith(missing)


@pytest.mark.slow
def test_every_slice_runs(tmp_path):
    assert gpu_day.main([str(tmp_path), "--small"]) == 0
    assert {file.stem for file in tmp_path.glob("*.json")} == {*NAMES}
