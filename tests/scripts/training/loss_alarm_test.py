"""A training that goes wrong early is told of once: by its losses, and by its rate before."""

import dataclasses
import math
import warnings
from types import SimpleNamespace

import pytest

from towers.scripts.training.catalogue import find_recipe
from towers.scripts.training.loss_alarm import LossAlarm
from towers.scripts.training.session import make_optimizer

HEALTHY = [2.5, 2.6, 2.6, 2.6, 2.2, 2.6, 2.6, 2.6, 2.6, 1.0]


def warned(losses, first_step=1):
    """Returns the warnings of a run whose first loss is 2.3."""
    alarm = LossAlarm()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        alarm.keep_first(SimpleNamespace(step=first_step, results=SimpleNamespace(loss=2.3)))
        alarm.keep_first(SimpleNamespace(step=first_step + 1, results=SimpleNamespace(loss=99.0)))
        for loss in losses:
            alarm.check(loss)
    return [str(one.message) for one in found]


@pytest.mark.parametrize("losses", [[3.0] * 20, [1.0, math.nan, math.nan], [math.inf, 1.0]])
def test_losses_that_stay_above_the_first_or_are_not_finite_are_told_of_once(losses):
    (message,) = warned(losses)
    assert "was 2.3 in the first step" in message


def test_losses_that_fall_and_those_of_a_run_that_goes_on_are_not_told_of():
    assert not warned(HEALTHY)
    assert not warned([3.0] * 20, first_step=100)


@pytest.mark.parametrize(("rate", "is_told"), [(10.0, False), (50.0, True)])
def test_an_absurd_rate_is_told_of_before_the_first_step(rate, is_told):
    fields = dataclasses.replace(find_recipe("shapes").fields, learning_rate=rate)
    data = SimpleNamespace(train=SimpleNamespace(steps_per_epoch=3))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        make_optimizer(fields, data, epochs=1)
    assert ["learning rate, 50 at its peak" in str(one.message) for one in found] == [
        True
    ] * is_told
