"""Pipelines over the same pictures are compared, of recipe images alone."""

import json

import pytest

from tests.benchmarks.commands import main, refuse
from tests.data.image_files.pictures import write_pictures

SMALL = ["--batch-size", "9", "--set", "network=softmax", "--set", "size=16"]
SMALL += ["--set", "schedule=constant", "--set", "warmup_steps=0"]
SMALL += ["--set", "validation_share=0.3"]


@pytest.mark.slow
def test_pipelines_are_compared(tmp_path):
    write_pictures(tmp_path / "pictures", broken=False)
    for path in tmp_path.glob("pictures/*/*.webp"):
        path.unlink()  # Keras's function takes no WebP.
    command = ["input", "images", "--data", str(tmp_path / "pictures"), *SMALL, "--steps", "2"]
    command += ["--against", "keras_directory", "--repetitions", "2"]
    assert main([*command, "--results", str(tmp_path / "results.jsonl")]) == 0
    line = json.loads((tmp_path / "results.jsonl").read_text())
    assert set(line["results"]) == {"images", "keras_directory"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shapes", "--against", "tf_data"], "use recipe images"),
        (["images", "--against", "tf_daa"], "Did you mean 'tf_data'?"),
        (["images", "--against", "tf_data"], "give --data FOLDER"),
        (["images", "--exchange", "nccl"], "there is no option --exchange"),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments, message, capsys):
    assert message in refuse(["input", *arguments], capsys)
