"""A run's metrics.jsonl holds each step once, over kills, resumes and numbers that JSON lacks."""

import json

import pytest

from towers.saving.metrics_file import MetricsFile

TRAIN, TEST, END = MetricsFile.TRAIN, MetricsFile.TEST, MetricsFile.END


def write_all(metrics, *lines):
    for kind, step in lines:
        metrics.write(kind, step, {"loss": step / 3})


def steps_of(path):
    return [(line["kind"], line["step"]) for line in MetricsFile(path).read()]


def test_a_run_that_continues_writes_each_step_once(tmp_path):
    metrics = MetricsFile(tmp_path / "run" / "metrics.jsonl")
    metrics.cut(0, 0)  # There is no file yet.
    write_all(
        metrics,
        (TRAIN, 2),
        (TRAIN, 4),
        (TEST, 4),
        (TRAIN, 6),
        (TEST, 6),
        (END, 6),
    )
    again = MetricsFile(metrics.path)
    again.cut(4, 4)
    assert steps_of(metrics.path) == [
        (TRAIN, 2),
        (TRAIN, 4),
        (TEST, 4),
    ]
    write_all(again, (TRAIN, 6))
    again.sync()
    assert steps_of(metrics.path) == [
        (TRAIN, 2),
        (TRAIN, 4),
        (TEST, 4),
        (TRAIN, 6),
    ]


def test_an_evaluation_that_comes_again_is_cut(tmp_path):
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    write_all(metrics, (TRAIN, 4), (TEST, 4))
    metrics.cut(4, 0)
    assert steps_of(metrics.path) == [(TRAIN, 4)]


def test_a_line_that_a_kill_left_half_written_is_removed(tmp_path):
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    write_all(metrics, (TRAIN, 2))
    whole = metrics.path.read_bytes()
    metrics.path.write_bytes(whole + b'{"kind": "train", "st')
    assert steps_of(metrics.path) == [(TRAIN, 2)]
    MetricsFile(metrics.path).cut(2, 2)
    assert metrics.path.read_bytes() == whole


def test_what_is_no_line_is_left_out_with_a_warning(tmp_path):
    path = tmp_path / "metrics.jsonl"
    line = b'{"kind": "train", "step": 1}'
    wrong = [b"[" * 100_000, b"[1]", b'{"step": 2}', b'{"kind": [], "step": 2}', b"\xff" + line]
    wrong.append(line.replace(b"train", b"tr\xffin"))
    path.write_bytes(b"\n".join([line, *wrong, line]))
    with pytest.warns(RuntimeWarning, match=r"6 lines, the first of them line 2, cannot be read"):
        assert MetricsFile(path).read() == 2 * [{"kind": "train", "step": 1}]


def test_numbers_that_json_lacks_are_null(tmp_path):
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    metrics.write(TEST, 1, {"loss": float("nan"), "perplexity": float("inf"), "accuracy": 1 / 3})

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    (text,) = metrics.path.read_text().splitlines()
    line = json.loads(text, parse_constant=refuse)
    assert line["loss"] is None and line["perplexity"] is None and line["accuracy"] == 0.3333333
