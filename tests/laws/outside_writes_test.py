"""Law 18: what is written outside of the step reaches every copy, or the training says so."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from tests.towers.saving.saved_groups import write_checkpoint
from towers.saving.checkpoint_files import read_checkpoint

BATCHES = helpers.dense_batches([4, 4, 3])


class Training:
    """A model with a momentum optimizer on two towers, and the data to train it."""

    def __init__(self, parameters, *, with_step=True):
        self.placement = helpers.tower_placement(2, parameters)
        keras.utils.set_random_seed(4)
        with self.placement.scope():
            inputs = keras.Input((5,))
            hidden = keras.layers.Dense(6, activation="tanh", name="hidden")(inputs)
            hidden = keras.layers.BatchNormalization(name="norm")(hidden)
            self.model = keras.Model(inputs, keras.layers.Dense(3, name="logits")(hidden))
            self.optimizer = keras.optimizers.SGD(0.2, momentum=0.9)
        self.dataset = helpers.dataset_of(BATCHES)
        self.step = self.build(self.model, self.optimizer) if with_step else None

    def build(self, variables, optimizer):
        tower_fn = helpers.classify(self.model, training=True)
        options = towers.StepOptions(probe=False)
        return towers.build_train_step(
            tower_fn, variables, optimizer, self.placement, self.dataset, options
        )

    def train(self, *actions, epochs=2):
        updates = towers.steps.SynchronousUpdates(self.step, towers.batches_from(self.dataset))
        towers.Trainer.making(updates, actions).train(epochs=epochs)

    def variables(self):
        return [variable for group in self.step.groups().values() for variable in group]

    def values(self):
        return [variable.numpy() for variable in self.variables()]

    def assign(self, values):
        for variable, value in zip(self.variables(), values, strict=True):
            variable.assign(value)


@functools.cache
def built_once():
    """A training with one copy and one with a copy on each tower, and their first values."""
    trainings = Training("cpu"), Training("replicated")
    return trainings, [training.values() for training in trainings]


def begun_again():
    """The trainings of all tests at their beginning: what is written here is the first write."""
    trainings, first_values = built_once()
    for training, values in zip(trainings, first_values, strict=True):
        training.assign(values)
    return trainings


def assert_reaches_every_copy(run, trainings=None):
    """Asserts that `run(training)` gives the same with a copy on each tower as with one."""
    shared, replicated = trainings or begun_again()
    for training in (shared, replicated):
        run(training)
        training.step.check_copies()
    for one, other in zip(replicated.values(), shared.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


def test_a_learning_rate_that_an_action_sets():
    def run(training):
        def decay(report):
            training.optimizer.learning_rate = 0.2 / report.step

        training.train(decay)

    assert_reaches_every_copy(run)


def test_weights_that_an_action_sets():
    def run(training):
        def halve(report):
            if report.step == 2:
                training.model.set_weights([0.5 * array for array in training.model.get_weights()])

        training.train(halve)

    assert_reaches_every_copy(run)


def test_a_checkpoint_that_an_action_restores(tmp_path):
    def run(training):
        path = tmp_path / training.placement.parameters

        def go_back(report):
            if report.step == 1:
                write_checkpoint(path, 1, training.step.groups(), {})
            if report.step == 4:
                towers.checkpoints.restore(read_checkpoint(path), training.step.groups())

        training.train(go_back)

    assert_reaches_every_copy(run)


@pytest.mark.slow
def test_updates_that_an_action_makes_by_itself():
    def run(training):
        own = keras.optimizers.Adam(0.1)

        def update(report):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(training.model(tf.ones((2, 5)), training=True) ** 2)
            trained = training.model.trainable_variables
            own.apply(tape.gradient(loss, [one.value for one in trained]), trained)

        training.train(update)

    assert_reaches_every_copy(run)


@pytest.mark.slow
@pytest.mark.parametrize(
    "other_parameters", ["replicated", pytest.param("cpu", marks=pytest.mark.slow)]
)
def test_steps_that_take_turns_on_one_model(other_parameters):
    """As for a generator and a discriminator: each writes what the other reads."""

    def run(training):
        if training.placement.parameters == "replicated":
            training.placement = helpers.tower_placement(2, other_parameters)
        other = training.build(training.model, keras.optimizers.Adam(0.05))
        for number, shards in enumerate(towers.engine.split(training.dataset, 2), 1):
            training.step(shards, number)
            other(shards, number)
        training.step(shards, 4)

    assert_reaches_every_copy(run, (Training("cpu"), Training("replicated")))


@pytest.mark.slow
def test_the_parts_of_a_joint_step():
    """Each part's copies get what the other part has trained, and no more."""

    def run(training):
        chosen = [training.model.variables[:2], training.model.variables[2:]]
        tower_fn = helpers.classify(training.model, training=True)
        parts = {
            str(index): towers.steps.JointUpdate(
                tower_fn, variables, keras.optimizers.SGD(0.1, momentum=0.5)
            )
            for index, variables in enumerate(chosen)
        }
        options = towers.StepOptions(probe=False)
        training.step = towers.steps.build_joint_step(
            parts, training.placement, training.dataset, options
        )
        training.train(epochs=1)
        for shards in towers.engine.split(training.dataset, 2):
            training.step(shards, 4)
        pending = training.step.steps["0"].update.copies._writes.pending
        is_replicated = training.placement.parameters == "replicated"
        assert len(pending) == (len(chosen[1]) if is_replicated else 0)

    without = [Training(parameters, with_step=False) for parameters in ("cpu", "replicated")]
    assert_reaches_every_copy(run, without)


@pytest.mark.slow
def test_what_a_graph_of_someone_else_writes():
    def run(training):
        @tf.function
        def shrink():
            kernel = training.model.get_layer("logits").kernel
            kernel.assign(0.5 * kernel)

        if training.placement.parameters == "replicated":
            with pytest.warns(UserWarning, match=r"'logits/kernel' is assigned in a tf\.function"):
                shrink.get_concrete_function()
        training.train(lambda report: shrink())

    assert_reaches_every_copy(run, (Training("cpu"), Training("replicated")))


@pytest.mark.parametrize("parameters", [pytest.param("cpu", marks=pytest.mark.slow), "replicated"])
def test_a_schedule_that_comes_after_the_step_is_refused(parameters):
    training = Training(parameters)

    def schedule(report):
        training.optimizer.learning_rate = keras.optimizers.schedules.CosineDecay(0.2, 10)

    with pytest.raises(RuntimeError, match=r"rate of (sgd|SGD) was replaced after .*CosineDe"):
        training.train(schedule)


def test_what_no_step_can_see_ends_the_training_with_the_variables_name():
    training = Training("replicated")
    bias = training.model.get_layer("logits").bias.value.handle

    def hide(report):
        if report.step == 2:
            tf.raw_ops.AssignAddVariableOp(resource=bias, value=tf.ones(3))

    with pytest.raises(RuntimeError, match=r"'logits/bias' on /CPU:2 .*copy_parameters\(\)"):
        training.train(hide, epochs=1)
    training.assign(training.values())

    def hide_and_stop(report):
        hide(report)
        if report.step == 2:
            raise towers.StopTraining("enough")

    with pytest.raises(RuntimeError, match=r"'logits/bias' on /CPU:2"):
        training.train(hide_and_stop)


def test_a_step_with_one_copy_leaves_the_variables_as_they_are():
    training, _ = begun_again()
    training.train(epochs=1)
    assert not any("assign" in vars(variable.value) for variable in training.model.variables)


def test_nothing_is_copied_when_nothing_was_written():
    _, training = begun_again()
    training.train(epochs=1)
    assert not training.step.update.copies._writes.pending
    training.optimizer.learning_rate = 0.1
    assert len(training.step.update.copies._writes.pending) == 1
