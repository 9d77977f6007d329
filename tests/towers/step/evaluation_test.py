"""An evaluation tells of each batch that is done."""

import towers
from tests import helpers


def test_each_batch_is_told_once():
    model = helpers.dense_model()
    batches = helpers.dense_batches([8, 8, 5])
    dataset = helpers.dataset_of(batches)
    placement = helpers.tower_placement(2)
    step = towers.build_evaluation_step(helpers.classify(model), model, placement, dataset)
    expected, told = towers.evaluate(step, dataset), []
    step.after_batch = lambda: told.append(1)
    assert towers.evaluate(step, dataset) == expected and expected["examples"] == 21
    assert len(told) == 3
