"""Whether the parameters travel too much is measured once and said in one line."""

import keras
import pytest

import towers
from tests import helpers
from towers.loop import advice


def train(num_towers, num_batches):
    model = helpers.dense_model()
    step, _ = helpers.build_step(
        helpers.classify(model),
        model,
        keras.optimizers.SGD(0.1),
        helpers.dense_batches([4] * num_batches),
        num_towers,
    )
    lines = []
    batches = towers.batches_from(helpers.dataset_of(helpers.dense_batches([4] * num_batches)))
    action = advice.advise_placement(step, lines.append)
    helpers.make_trainer(step, batches, [action]).train(epochs=1)
    return step, lines


def test_travel_of_all_parameters_takes_time():
    step, _ = train(2, 1)
    assert 0 < advice.measure_transfers(step) < 60


def test_line_is_written_at_most_once_and_says_what_to_try():
    _, lines = train(2, 45)
    assert len(lines) <= 1
    assert all("--parameters tower0" in line for line in lines)


def test_one_tower_is_never_advised():
    assert train(1, 25)[1] == []


@pytest.mark.parametrize(
    ("fraction", "said"), [(0.0, False), (0.3, False), (0.31, True), (7.0, True)]
)
def test_more_than_thirty_percent_is_too_much(fraction, said):
    line = advice.format_advice(fraction)
    assert (line is not None) == said
    assert not said or f"{min(fraction, 1):.0%}" in line
