"""A report is one line that fits the terminal."""

import dataclasses

import numpy as np
import pytest

from tests.towers.loop.reports import line_of, rates_of, report_of
from towers.loop import printing


def test_a_report_is_one_line():
    assert line_of(report_of(1200), rates_of()) == (
        "train | step 1200 | loss 3.2104 (t0 3 t1 4) | accuracy 0.2500 | norm 1.8 | "
        "14.2 steps/s | 3628 examples/s"
    )


def test_one_tower_has_no_losses_of_its_own():
    line = line_of(report_of(7, num_towers=1), rates_of())
    assert line.startswith("train | step 7 | loss 3.2104 | accuracy")


@pytest.mark.parametrize("wait, shown", [(0.9, False), (1.0, True), (2.5, True)])
def test_input_wait_is_reported_from_ten_percent_on(wait, shown):
    line = line_of(report_of(1), rates_of((0.0, wait)))
    assert line.endswith(f" | input wait {wait / 10:.0%}") is shown


def test_a_report_is_printed(capsys):
    printing.print_report(report_of(1), rates_of())
    assert capsys.readouterr().out.startswith("train | step 1 | ")


@pytest.mark.parametrize("num_towers", range(1, 9))
def test_a_line_fits_and_says_how_each_tower_does_and_the_first_metric(num_towers):
    begin = "train | step 120000 | loss 3.2104"
    whole = " (" + " ".join(f"t{i} {3 + i}" for i in range(num_towers)) + ")"
    for columns in range(40, 121):
        line, others = shortened(columns, num_towers)
        assert line.startswith(begin) and len(line) <= columns
        losses = line.removeprefix(begin).partition(" | ")[0]
        if num_towers == 1:
            assert losses == ""
        elif losses != whole:  # The norm leaves before they become shorter.
            assert "norm 1.8" not in others
        if columns >= 80:
            assert others[0] == "accuracy 0.2500" and (losses or num_towers == 1)


def shortened(columns, num_towers):
    """Returns the line of a report, and what it says besides the losses."""
    rates = rates_of([1.0] * num_towers, 20, 2.0, 5)
    report = report_of(120_000, num_towers=num_towers)
    line = line_of(report, rates, columns=columns)
    return line, line.split(" | ")[3:]


def test_others_leave_in_their_order():
    lines = [shortened(columns, 2)[1] for columns in range(140, 40, -1)]
    assert list(dict.fromkeys(map(tuple, lines))) == [
        ("accuracy 0.2500", "norm 1.8", "10.0 steps/s", "5 examples/s", "input wait 50%"),
        ("accuracy 0.2500", "10.0 steps/s", "5 examples/s", "input wait 50%"),
        ("accuracy 0.2500", "5 examples/s", "input wait 50%"),
        ("accuracy 0.2500", "input wait 50%"),
        ("accuracy 0.2500",),
        (),
    ]


def test_eight_towers_losses_fit_a_terminal():
    losses = np.float32([3.1921, 3.23, 12.5, 0.123456, 1e-3, 3.4, 3.5, 123.4])
    report = report_of(120_000, num_towers=8)
    towers = report.results.towers._replace(loss=losses)
    report = dataclasses.replace(report, results=report.results._replace(towers=towers))
    rates = rates_of([0.0] * 8, 20, 2.0, 5)
    begin = "train | step 120000 | loss 3.2104"
    shown = {n: line_of(report, rates, columns=n) for n in (200, 131, 121, 80, 60, 40)}
    assert shown == {
        200: f"{begin} (t0 3.192 t1 3.23 t2 12.5 t3 0.1235 t4 0.001 t5 3.4 t6 3.5 t7 123.4) "
        "| accuracy 0.2500 | norm 1.8 | 10.0 steps/s | 20 examples/s",
        131: f"{begin} (3.192 3.23 12.5 0.1235 0.001 3.4 3.5 123.4) "
        "| accuracy 0.2500 | 10.0 steps/s | 20 examples/s",
        121: f"{begin} (3.2 3.2 12 0.12 0.001 3.4 3.5 123) "
        "| accuracy 0.2500 | 10.0 steps/s | 20 examples/s",
        80: f"{begin} (t4 0.001 - t7 123.4) | accuracy 0.2500",
        60: f"{begin} (t4 0.001 - t7 123.4)",
        40: begin,
    }
