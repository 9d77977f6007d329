"""A training that goes wrong early is told of once: by its losses, and by its rate before."""

import math
import warnings
from types import SimpleNamespace

import pytest

from towers.scripts.training.alarm import Alarm
from towers.scripts.training.catalogue import find_recipe, restore_recipe

HEALTHY = [2.5, 2.6, 2.6, 2.6, 2.2, 2.6, 2.6, 2.6, 2.6, 1.0]


def warned(losses, first_step=1, alarm=None):
    """Returns the warnings of a run whose first loss is 2.3."""
    alarm = alarm or Alarm(find_recipe("shapes"))
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
    assert "up from 2.3 in the first step" in message


def test_losses_that_fall_and_those_of_a_run_that_goes_on_are_not_told_of():
    assert not warned(HEALTHY)
    assert not warned([3.0] * 20, first_step=100)


def alarm_of(name, *overrides):
    return Alarm(restore_recipe(name, {}, overrides))


def begun(alarm, num_updates=None):
    """Returns the warnings before the training."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        alarm.begin(num_updates)
    return [str(one.message) for one in found]


@pytest.mark.parametrize(("name", "rate"), [("shapes", 10), ("shapes", 50), ("ptb_large", 35)])
def test_an_absurd_rate_is_told_of_instead_of_the_losses(name, rate):
    alarm = alarm_of(name, f"learning_rate={rate}")
    found = begun(alarm)
    assert len(found) == (rate == 50)
    assert all("A learning rate of 50 is far above" in one for one in found)
    assert len(warned([3.0] * 20, alarm=alarm)) == (rate != 50)


def test_a_training_of_few_updates_is_told_how_to_get_more():
    (found,) = begun(alarm_of("chatbot"), 42)
    assert found.startswith("9 epochs of this data are 42 updates")
    assert not begun(alarm_of("chatbot"), 5000) and not begun(alarm_of("chatbot", "epochs=3"), 9)
    assert len(begun(alarm_of("chatbot", "learning_rate=50"), 42)) == 2
