"""An optimizer's averages of the weights: used in the end and on request, never trained from."""

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers

BATCHES = helpers.dense_batches([4, 3, 4])


def adam(**options):
    return keras.optimizers.Adam(0.05, **{"use_ema": True, "ema_momentum": 0.6, **options})


def several_optimizers():
    chosen = {"kernel": adam(), "bias": adam(ema_momentum=0.9)}
    return keras.optimizers.MultiOptimizer(lambda variable: chosen[variable.name])


def fresh_model():
    keras.utils.set_random_seed(5)
    inputs = keras.Input((5,))
    return keras.Model(inputs, keras.layers.Dense(3, name="logits")(inputs))


def make_trainer(parameters="cpu", make_optimizer=adam, actions=(), **options):
    placement = helpers.tower_placement(2, parameters)
    with placement.scope():
        model, optimizer = fresh_model(), make_optimizer()
    dataset = helpers.dataset_of(BATCHES)
    tower_fn = helpers.classify(model)
    step = towers.build_train_step(
        tower_fn, model, optimizer, placement, dataset, towers.StepOptions(probe=False)
    )
    updates = towers.steps.SynchronousUpdates(step, dataset)
    return model, towers.Trainer.making(updates, actions, **options), step


def plain_averages(epochs, momentum=0.6):
    """The averages of a plain loop: of the weights after every update."""
    model, averages = fresh_model(), None
    optimizer = keras.optimizers.Adam(0.05)
    for batch in BATCHES * epochs:
        weights, _ = helpers.train_plainly(helpers.classify(model), model, optimizer, [batch])
        averages = averages or weights
        pairs = zip(averages, weights, strict=True)
        averages = [momentum * old + (1 - momentum) * new for old, new in pairs]
    return averages, weights


@pytest.mark.parametrize("parameters", [pytest.param("cpu", marks=pytest.mark.slow), "replicated"])
def test_a_model_holds_the_averages_in_the_end_and_trains_on_from_its_weights(parameters):
    model, trainer, step = make_trainer(parameters)
    for epochs in (1, 3):
        trainer.train(epochs=epochs)
        averages, weights = plain_averages(epochs)
        helpers.assert_same_weights(helpers.weights_of(model), averages)
        assert np.abs(averages[0] - weights[0]).max() > 0.01
    step.check_copies()


def test_a_step_that_trains_fewer_variables_in_another_order_keeps_each_average():
    """Keras finds averages by their places in the list that its optimizer was built with."""
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.Input((3,)), *(keras.layers.Dense(3) for _ in range(3))])
    kernels = [layer.kernel for layer in model.layers]
    optimizer = keras.optimizers.Adam(0.0, use_ema=True, ema_momentum=0.6)
    optimizer.build(kernels)
    before = [kernel.numpy() for kernel in kernels]
    placement = helpers.tower_placement(2)
    data = helpers.dataset_of([np.ones([4, 3], "float32")])

    def tower_fn(x):
        return tf.reduce_sum(model(x)), tf.shape(x)[0], {}

    for trained in ([*reversed(kernels)], [kernels[2]]):
        others = [one for one in model.weights if not any(one is kernel for kernel in trained)]
        for variable in model.weights:
            variable.trainable = any(variable is kernel for kernel in trained)
        step = towers.build_train_step(
            tower_fn,
            [*trained, *others],
            optimizer,
            placement,
            data,
            towers.StepOptions(probe=False),
        )
        trainer = towers.Trainer(step, data)
        trainer.train(steps=2)
        for kernel, value in zip(kernels, before, strict=True):
            np.testing.assert_allclose(kernel, value, rtol=1e-6)
        trainer.restore_weights()


@pytest.mark.slow
@helpers.newer_keras("has no MultiOptimizer")
def test_the_averages_of_several_optimizers_are_used():
    model, trainer, _ = make_trainer(make_optimizer=several_optimizers)
    trainer.train(epochs=2)
    kernel, bias = helpers.weights_of(model)
    helpers.assert_same_weights([kernel], plain_averages(2)[0][:1])
    helpers.assert_same_weights([bias], plain_averages(2, momentum=0.9)[0][1:])


@pytest.mark.slow
def test_keras_fit_ends_with_the_same_averages():
    model, trainer, _ = make_trainer()
    trainer.train(epochs=2)
    fitted = fresh_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    fitted.compile(adam(), loss, jit_compile=False)
    counted = tf.data.experimental.assert_cardinality(len(BATCHES))
    fitted.fit(helpers.dataset_of(BATCHES).apply(counted), epochs=2, verbose=0, shuffle=False)
    helpers.assert_same_weights(helpers.weights_of(model), helpers.weights_of(fitted))


@pytest.mark.parametrize("parameters", ["cpu", pytest.param("replicated", marks=pytest.mark.slow)])
def test_an_action_evaluates_and_saves_the_averages(parameters, tmp_path):
    folder, seen = towers.checkpoints.CheckpointFolder(tmp_path / "best"), []

    def save_best(report):
        with trainer.averaged():
            seen.append(helpers.weights_of(model))
            folder.save_best(report.step, step.groups(), {})
        seen.append(helpers.weights_of(model))

    model, trainer, step = make_trainer(
        parameters, actions=[towers.actions.every(save_best, epochs=True)], run_dir=tmp_path
    )
    trainer.train(epochs=1)
    for found, expected in zip(seen, plain_averages(1), strict=True):
        helpers.assert_same_weights(found, expected)
    best = [saved.array for saved in folder.best().groups["variables"]]
    helpers.assert_same_weights(best, plain_averages(1)[0])


def test_a_run_that_ended_with_its_averages_goes_on_from_its_weights(tmp_path):
    for epochs in (1, 2):
        model, trainer, _ = make_trainer(run_dir=tmp_path)
        trainer.train(epochs=epochs)
    whole, uninterrupted, _ = make_trainer()
    uninterrupted.train(epochs=2)
    for one, other in zip(helpers.weights_of(model), helpers.weights_of(whole), strict=True):
        np.testing.assert_array_equal(one, other)
    saved = trainer._checkpoints.latest().groups["variables"]
    helpers.assert_same_weights([one.array for one in saved], plain_averages(2)[1])


def test_what_is_assigned_after_a_training_is_kept():
    model, trainer, _ = make_trainer()
    trainer.train(epochs=1)
    _, before = plain_averages(1)
    model.layers[1].bias.assign([7.0, 8.0, 9.0])
    trainer.train(epochs=1)  # Nothing is left to train; the averages take their place again.
    trainer._averages.close()
    np.testing.assert_array_equal(model.layers[1].bias.numpy(), [7, 8, 9])
    helpers.assert_same_weights([model.layers[1].kernel.numpy()], before[:1])


def test_a_model_keeps_its_averages_when_the_trainer_is_thrown_away():
    model, trainer, step = make_trainer()
    trainer.train(epochs=1)
    del trainer, step
    gc.collect()
    helpers.assert_same_weights(helpers.weights_of(model), plain_averages(1)[0])


def test_a_joint_step_keeps_its_averages_too():
    model, whole = fresh_model(), fresh_model()
    parts = {
        name: towers.steps.JointUpdate(helpers.classify(model), [variable], adam())
        for name, variable in zip(("kernel", "bias"), model.variables, strict=True)
    }
    dataset = helpers.dataset_of(BATCHES)
    options = towers.StepOptions(probe=False)
    step = towers.steps.build_joint_step(parts, helpers.tower_placement(2), dataset, options)
    trainer = towers.Trainer(step, dataset)
    trainer.train(epochs=1)
    with trainer.averaged():
        averages = helpers.weights_of(model)
    del trainer, step
    gc.collect()
    helpers.assert_same_weights(helpers.weights_of(model), averages)
    assert np.abs(averages[0] - whole.weights[0].numpy()).max() > 0.01


def test_there_are_no_averages_before_the_first_update():
    model, trainer, _ = make_trainer()
    before = helpers.weights_of(model)
    with trainer.averaged():
        held = helpers.weights_of(model)
    assert trainer.train(epochs=0) == "0 epochs done"
    for one, two, three in zip(before, held, helpers.weights_of(model), strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


def test_asynchronous_towers_end_with_their_averages():
    model = fresh_model()
    placement, dataset = helpers.tower_placement(1), helpers.dataset_of(BATCHES)
    step = towers.steps.build_async_step(
        helpers.classify(model), model, adam(), placement, dataset, towers.StepOptions(probe=False)
    )
    held = []

    def look(report):
        if report.step == 3:
            with trainer.averaged():
                held.append(helpers.weights_of(model))

    trainer = towers.Trainer(step, dataset, [look])
    trainer.train(epochs=1)
    for found in (held[0], helpers.weights_of(model)):
        helpers.assert_same_weights(found, plain_averages(1)[0])
