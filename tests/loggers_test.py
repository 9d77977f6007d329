"""Loggers of others and the notebook: the guide's examples run as they are written."""

import importlib.util
import json
import os
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.documents_test import BLOCK, PAGES, examples_of
from tests.paths import ROOT
from tests.programs import run

GUIDE = PAGES["docs/guides/fit.md"]
# Each has a store of its own in the working folder, and asks nothing of the network.
OFFLINE = {"WANDB_SILENT": "true", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}


def run_python(code: str, folder: Path) -> str:
    """Runs a program in a folder; returns what it prints."""
    (folder / "program.py").write_text(code, encoding="utf-8")
    environment = {**os.environ, **OFFLINE, "PYTHONPATH": str(ROOT)}
    return run([sys.executable, "program.py"], cwd=folder, env=environment)


def run_example(package: str, folder: Path) -> None:
    """Runs the guide's first example, which makes a model and its data, and that of a package."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install wandb mlflow keras-tuner")
    blocks = [block["code"] for block in BLOCK.finditer(GUIDE) if block["language"] == "python"]
    (example,) = (code for code in blocks if f"import {package}\n" in code)
    run_python(f"{examples_of(GUIDE)[0]}\n{example}", folder)


@pytest.mark.slow
def test_wandb_has_the_epochs_and_the_curves_of_the_run_directory(tmp_path):
    run_example("wandb", tmp_path)
    (log,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    content = log.read_bytes()
    assert b"epoch/accuracy" in content and b"tower_1/loss" in content
    (debug,) = tmp_path.glob("wandb/offline-run-*/logs/debug.log")
    folders = {path.name for path in (tmp_path / "runs/logged/summaries").iterdir()}
    text = debug.read_text(encoding="utf-8")
    assert folders and all(f"runs/logged/summaries/{folder}" in text for folder in folders)


@pytest.mark.slow
def test_mlflow_has_a_point_of_each_metric_for_each_epoch(tmp_path):
    run_example("mlflow", tmp_path)
    with sqlite3.connect(tmp_path / "mlflow.db") as store:
        points = store.execute("SELECT key, step FROM metrics ORDER BY key, step").fetchall()
    assert points == [("accuracy", 0), ("accuracy", 1), ("loss", 0), ("loss", 1)]


@pytest.mark.slow
def test_keras_tuner_tries_models_on_towers(tmp_path):
    run_example("keras_tuner", tmp_path)
    trials = [json.loads(path.read_text()) for path in tmp_path.glob("tuned/*/trial_*/trial.json")]
    assert len(trials) == 2 and all(trial["score"] > 0 for trial in trials)


def cells_of(path: Path, kind: str) -> Iterable[str]:
    """Yields the sources of a notebook's cells of a kind."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ("".join(cell["source"]) for cell in cells if cell["cell_type"] == kind)


@pytest.mark.slow
def test_the_notebook_runs_cell_by_cell(tmp_path):
    path = ROOT / "docs/guides/fit.ipynb"
    cells = list(cells_of(path, "code"))
    assert len(cells) + len(list(cells_of(path, "markdown"))) <= 12
    output = run_python("\n\n".join(cells), tmp_path)
    assert "4 towers train points as one does" in output and "accuracy" in output
    assert (tmp_path / "points.keras").exists()


@pytest.mark.parametrize(
    "words", ["微信", "TFLite", "ONNX", "wandb", "Jupyter", "KerasTuner", "out of memory"]
)
def test_a_search_for_these_words_finds_a_page(words):
    """The site's search does not tell capital letters from small ones."""
    pages = [page for page in PAGES if page.startswith("docs/guides/")]
    assert any(words.lower() in PAGES[page].lower() for page in pages)
