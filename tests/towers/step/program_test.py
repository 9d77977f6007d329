"""What would train wrongly without a word is refused before anything is traced."""

import keras
import pytest
import tensorflow as tf

import towers
from tests import helpers

BUILDERS = {"synchronous": towers.build_train_step, "asynchronous": towers.steps.build_async_step}


def build(kind, variables, optimizer, tower_fn=None):
    """Returns a step of one tower, by default of one whose function must not be called."""

    def untouched(batch):
        raise AssertionError("The tower function was traced.")

    dataset = helpers.dataset_of(helpers.dense_batches([4]))
    placement = helpers.tower_placement(1)
    return BUILDERS[kind](tower_fn or untouched, variables, optimizer, placement, dataset)


@pytest.mark.parametrize("kind", BUILDERS)
@pytest.mark.parametrize(
    "make, received",
    [
        (
            lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
            r"Received LossScaleOptimizer",
        ),
        (
            lambda: keras.optimizers.Adam(loss_scale_factor=1024.0),
            r"Received Adam with loss_scale_factor=1024\.0",
        ),
    ],
    ids=["LossScaleOptimizer", "loss_scale_factor"],
)
def test_optimizers_that_unscale_gradients_are_refused(kind, make, received):
    with pytest.raises(ValueError, match=rf"{received}.*loss_scale=towers\.steps\.LossScale\(\)"):
        build(kind, helpers.dense_model(), make())


@pytest.mark.parametrize("kind", BUILDERS)
@pytest.mark.parametrize("wrong", ["adam", keras.optimizers.Adam, None])
def test_what_is_no_optimizer_is_refused(kind, wrong):
    with pytest.raises(ValueError, match=r"must be a Keras optimizer\. Received .*Adam\(1e-3\)"):
        build(kind, helpers.dense_model(), wrong)


@pytest.mark.parametrize("kind", BUILDERS)
@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: [helpers.dense_model()], r"list with <Functional.*pass the model itself"),
        (lambda: [tf.Variable(1.0, name="raw")], r"'raw:0'.*make it a keras\.Variable"),
        (lambda: helpers.dense_model().weights[0], r"Received <Variable.*pass the model itself"),
        (lambda: None, r"Received None; pass the model itself"),
    ],
    ids=["a model in a list", "raw variables", "one variable", "nothing"],
)
def test_what_are_no_keras_variables_is_refused(kind, make, message):
    with pytest.raises(ValueError, match=rf"variables must be the model, or a list.*{message}"):
        build(kind, make(), keras.optimizers.SGD(0.1))


@pytest.mark.parametrize("count", [1, 3])
def test_a_step_says_that_it_takes_the_shards_of_a_batch(count):
    model, batch = helpers.dense_model(), helpers.dense_batches([4])[0]
    dataset, placement = helpers.dataset_of([batch]), helpers.tower_placement(2)
    step = towers.build_train_step(
        helpers.classify(model), model, keras.optimizers.SGD(0.1), placement, dataset
    )
    for wrong in (batch, (towers.engine.split_batch(batch, count), 1)):
        with pytest.raises(ValueError, match=r"each of 2 towers.*engine.split_batch\(batch, 2\)"):
            step(*wrong)
    step(towers.engine.split_batch(batch, 2), 1)


@pytest.mark.parametrize("wrong", [2.0, 0, True, "2"])
def test_micro_batches_are_counted_in_whole_numbers(wrong):
    with pytest.raises(ValueError, match=rf"a whole number of at least 1. Received {wrong!r}"):
        towers.StepOptions(accumulate=wrong)


def test_evaluation_refuses_a_variable_given_twice():
    model = helpers.dense_model()
    dataset, placement = helpers.dataset_of(helpers.dense_batches([4])), helpers.tower_placement(2)
    variables = [*model.variables, model.variables[0]]
    with pytest.raises(ValueError, match=r"more than once: hidden/kernel\."):
        towers.build_evaluation_step(helpers.classify(model), variables, placement, dataset)


def test_the_remedy_for_optimizers_that_unscale_is_public():
    assert towers.steps.LossScale().read().dtype == tf.float32


@helpers.newer_keras("shows the values of a variable in its error, which a graph has not")
@pytest.mark.parametrize("kind", BUILDERS)
def test_an_optimizer_that_was_built_for_another_model_is_refused_as_that(kind):
    other, model, optimizer = helpers.dense_model(), helpers.dense_model(), keras.optimizers.Adam()
    optimizer.build(other.trainable_variables)
    with pytest.raises(ValueError, match=r"hidden/kernel.*originally built with.*recreate"):
        build(kind, model, optimizer, helpers.classify(model))


@pytest.mark.parametrize("kind", BUILDERS)
def test_a_variable_given_twice_is_refused(kind):
    model = helpers.dense_model()
    variables = [*model.variables, model.variables[2]]
    optimizer = keras.optimizers.SGD(0.1)
    with pytest.raises(ValueError, match=r"more than once: logits/kernel\. Pass a model"):
        build(kind, variables, optimizer, helpers.classify(model))


def shared_layer(cls):
    """A model that calls one layer twice: sequential, subclassed, or with one nested in it."""
    layer = keras.layers.Dense(5, name="shared")
    if cls is keras.Sequential:
        return keras.Sequential([keras.Input((5,)), layer, layer, keras.layers.Dense(3)])
    if cls is None:
        inputs = keras.Input((5,))
        inner = keras.Sequential([keras.Input((5,)), layer])
        return keras.Model(inputs, keras.layers.Dense(3)(inner(layer(inputs))))

    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.one, self.both, self.logits = layer, [layer, layer], keras.layers.Dense(3)

        def call(self, inputs, training=False):
            return self.logits(self.both[1](self.one(inputs)))

    return Subclassed()


@pytest.mark.parametrize("cls", [keras.Sequential, keras.Model, None])
def test_a_model_with_shared_layers_names_each_variable_once(cls):
    model = shared_layer(cls)
    step = build("synchronous", model, keras.optimizers.SGD(0.1), helpers.classify(model))
    assert len(step.update.copies.shared.trainable) == 4


@pytest.mark.parametrize("kind", BUILDERS)
def test_a_weight_of_unknown_shape_is_refused(kind):
    model = helpers.dense_model()

    def mean_of_nothing(batch):
        features, _ = batch
        loss = tf.reduce_sum(model(features) ** 2)
        return loss, features.shape[0], {}

    with pytest.raises(ValueError, match=r"use tf.shape\(x\)\[0\]"):
        build(kind, model, keras.optimizers.SGD(0.1), mean_of_nothing)


def test_a_device_that_is_not_there_is_refused():
    model, dataset = helpers.dense_model(), helpers.dataset_of(helpers.dense_batches([4]))
    placement = towers.Placement(["/GPU:0", "/GPU:1"])
    step = towers.build_evaluation_step(helpers.classify(model), model, placement, dataset)
    with pytest.raises(ValueError, match=r"no device '/GPU:0'. TensorFlow has /device:CPU:0"):
        towers.evaluate_step(step, dataset)


def test_batches_of_another_kind_are_refused():
    model, placement = helpers.dense_model(), helpers.tower_placement(1)
    with pytest.raises(ValueError, match=r"Received tuple; towers.batches_from"):
        towers.build_train_step(
            helpers.classify(model), model, keras.optimizers.SGD(0.1), placement, ([1.0], [1])
        )


@pytest.mark.parametrize(
    "build_it",
    [
        lambda placement, dataset, **options: towers.build_train_step(
            None, None, keras.optimizers.SGD(0.1), placement, dataset, **options
        ),
        lambda placement, dataset, **options: towers.steps.build_async_step(
            None, None, keras.optimizers.SGD(0.1), placement, dataset, **options
        ),
        lambda placement, dataset, **options: towers.steps.build_joint_step(
            {}, placement, dataset, **options
        ),
        lambda placement, dataset: towers.build_evaluation_step(None, None, placement, dataset),
    ],
    ids=["train", "async", "joint", "evaluation"],
)
def test_what_is_no_placement_and_no_options_is_refused(build_it, request):
    dataset = helpers.dataset_of(helpers.dense_batches([4]))
    with pytest.raises(ValueError, match=r"placement must be a Placement.*\['/CPU:0'\]"):
        build_it(["/CPU:0"], dataset)
    if "evaluation" in request.node.name:
        return
    with pytest.raises(ValueError, match=r"options must be a StepOptions.*'clip_norm': 1"):
        build_it(helpers.tower_placement(1), dataset, options={"clip_norm": 1})


@pytest.mark.parametrize("options", [{"accumulate": 6}, {"batch_norm": "first"}])
def test_a_deterministic_step_refuses_what_depends_on_the_number_of_towers(
    options, monkeypatch, sums_as_written
):
    monkeypatch.setattr("towers.step.tower_function.is_deterministic", lambda: True)
    dataset = helpers.dataset_of(helpers.dense_batches([4]))
    model = helpers.dense_model()
    with pytest.raises(ValueError, match=r"same bits on any number .* Received accumulate=.*use 1"):
        helpers.build_step_for(
            helpers.classify(model), model, keras.optimizers.SGD(0.1), dataset, 1, **options
        )


def test_a_number_of_processes_is_no_processes():
    with pytest.raises(ValueError, match=r"processes must be a Processes.*Received 2"):
        towers.build_train_step(
            None, None, keras.optimizers.SGD(0.1), helpers.tower_placement(1), None, processes=2
        )


def test_strings_are_not_given_to_xla():
    texts = tf.data.Dataset.from_tensors((tf.constant(["a", "b"]), tf.zeros([2])))
    model, options = helpers.dense_model(), towers.StepOptions(compiled=True)
    for _ in range(2):  # What XLA is given once can end the process the second time.
        with pytest.raises(ValueError, match="XLA cannot compile strings"):
            towers.build_train_step(
                lambda batch: None, model, keras.optimizers.SGD(0.1), helpers.tower_placement(1),
                texts, options,
            )  # fmt: skip
