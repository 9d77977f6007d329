"""A report is one line that fits the terminal."""

import pytest

from tests.towers.loop.reports import rates_of, report_of
from towers.loop import printing
from towers.loop.rates import Rates


def test_a_report_is_one_line():
    assert printing.format_report(report_of(1200), rates_of()) == (
        "train | step 1200 | loss 3.2104 (t0 3 t1 4) | accuracy 0.2500 | norm 1.8 | "
        "14.2 steps/s | 3628 examples/s"
    )


def test_one_tower_has_no_losses_of_its_own():
    line = printing.format_report(report_of(7, num_towers=1), rates_of())
    assert line.startswith("train | step 7 | loss 3.2104 | accuracy")


@pytest.mark.parametrize("wait, shown", [(0.9, False), (1.0, True), (2.5, True)])
def test_input_wait_is_reported_from_ten_percent_on(wait, shown):
    line = printing.format_report(report_of(1), rates_of((0.0, wait)))
    assert line.endswith(f" | input wait {wait / 10:.0%}") is shown


def test_a_report_is_printed(capsys):
    printing.print_report(report_of(1), rates_of())
    assert capsys.readouterr().out.startswith("train | step 1 | ")


def test_a_report_of_eight_towers_fits_a_terminal():
    report, rates = report_of(120_000, num_towers=8), Rates(20, 2.0, [0.0] * 8, [5.0] * 8)
    whole = printing.format_report(report, rates, first_tower=0)
    assert len(whole) > 80 and "t7 10)" in whole
    lines = [
        printing.format_report(report, rates, columns=n) for n in (len(whole), 110, 90, 80, 10)
    ]
    assert lines[0] == whole and all("accuracy 0.2500" in line for line in lines)
    assert "loss 3.2104 (t0 3 - t7 10) | accuracy 0.2500 | norm 1.8 | 10.0 steps/s" in lines[1]
    assert [len(line) <= n for line, n in zip(lines, (10**3, 110, 90, 80), strict=False)] == [
        True
    ] * 4
    assert lines[4] == "train | step 120000 | loss 3.2104 | accuracy 0.2500 | 20 examples/s"
