"""When an action is due, and the rates that it is given."""

import pytest

from tests.towers.loop.reports import report_of
from towers.loop import actions
from towers.loop.printing import print_report


def steps_of(action, num_steps=7, epoch_ends=(3, 6)):
    seen = []
    periodic = action(lambda report: seen.append(report.step))
    for step in range(1, num_steps + 1):
        periodic(report_of(step, epoch_end=step in epoch_ends))
    return seen


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"steps": 2}, [2, 4, 6]),
        ({"steps": 1}, [1, 2, 3, 4, 5, 6, 7]),
        ({"epochs": True}, [3, 6]),
        ({"steps": 4, "epochs": True}, [3, 4, 6]),
        ({"seconds": 0}, [1, 2, 3, 4, 5, 6, 7]),
        ({"seconds": 3600}, []),
        ({"seconds": 3600, "steps": 5}, [5]),
    ],
)
def test_an_action_runs_when_it_is_due(options, expected):
    assert steps_of(lambda action: actions.every(action, **options)) == expected


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, "needs steps, seconds"),
        ({"steps": 0}, "0"),
        ({"seconds": -1}, r"seconds must not be negative\. Received -1"),
        ({"seconds": "5"}, r"seconds must be a finite number\. Received '5'"),
    ],
)
def test_a_period_is_needed(options, message):
    with pytest.raises(ValueError, match=message):
        actions.every(print, **options)


def test_an_action_that_takes_other_values_is_refused_before_the_training():
    with pytest.raises(ValueError, match=r"print_report.*with_rates\(action, steps=\.\.\.\)"):
        actions.every(print_report, epochs=True)
    with pytest.raises(ValueError, match=r"action\(report, rates\).*every\(action, steps=\.\.\.\)"):
        actions.with_rates(lambda report: None, steps=2)


def test_rates_need_a_period_too():
    with pytest.raises(
        ValueError, match=r"steps must be a whole number of at least 1\. Received 0"
    ):
        actions.with_rates(print, steps=0)


def test_rates_are_those_since_the_last_run():
    seen = []
    periodic = actions.with_rates(lambda report, rates: seen.append((report.step, rates)), steps=2)
    for step in range(1, 6):
        periodic(report_of(step))
    assert [step for step, _ in seen] == [2, 4]
    for _, rates in seen:
        assert rates.steps_per_second == 2.0
        assert rates.tower_examples_per_second.tolist() == [4.0, 6.0]
        assert rates.tower_input_wait.tolist() == [0.0, 0.5]
