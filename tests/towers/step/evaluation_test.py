"""An evaluation tells of each batch that is done, and takes batches with an end."""

import pytest
import tensorflow as tf

import towers
from tests import helpers


def test_each_batch_is_told_once():
    model = helpers.dense_model()
    batches = helpers.dense_batches([8, 8, 5])
    dataset = helpers.dataset_of(batches)
    placement = helpers.tower_placement(2)
    step = towers.build_evaluation_step(helpers.classify(model), model, placement, dataset)
    expected, told = towers.evaluate_step(step, dataset), []
    step.after_batch = lambda: told.append(1)
    assert towers.evaluate_step(step, dataset) == expected and expected["examples"] == 21
    assert len(told) == 3


def test_it_takes_the_batches_of_an_epoch_and_no_endless_data_set():
    model, dataset = helpers.dense_model(), helpers.dataset_of(helpers.dense_batches([4, 3]))
    placement = helpers.tower_placement(2)
    step = towers.build_evaluation_step(helpers.classify(model), model, placement, dataset)
    batches = towers.batches_from(dataset)
    assert towers.evaluate_step(step, batches) == towers.evaluate_step(step, dataset)
    with pytest.raises(ValueError, match=r"endless.*take"):
        towers.evaluate_step(step, dataset.repeat())
    with pytest.raises(ValueError, match=r"batches must be a function.*Received tuple"):
        towers.evaluate_step(step, helpers.dense_batches([4])[0])


def test_means_in_place_of_sums_are_refused():
    model, batches = helpers.dense_model(), helpers.dataset_of(helpers.dense_batches([8, 5]))
    classify, placement = helpers.classify(model), helpers.tower_placement(2)

    def mean_loss(batch):
        loss, weight, metrics = classify(batch)
        return loss / tf.cast(weight, loss.dtype), weight, metrics

    def mean_metric(batch):
        loss, weight, _ = classify(batch)
        return loss, weight, {"mean": loss / tf.cast(weight, loss.dtype)}

    for tower_fn, message in (
        (mean_loss, "The loss is not a sum"),
        (mean_metric, "'mean' is a mean"),
    ):
        step = towers.build_evaluation_step(tower_fn, model, placement, batches)
        with pytest.raises(ValueError, match=message):
            towers.evaluate_step(step, batches)
        step.probe = None
        assert towers.evaluate_step(step, batches)["examples"] == 13
