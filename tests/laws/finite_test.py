"""Law 5: a gradient that is not finite changes nothing, and the message says whose it was."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.actions import NonFiniteGradientError
from towers.step.options import LossScale, set_precision
from towers.step.sums import Denominators
from towers.step.tower import gradient_factor


def normalised_model():
    inputs = keras.Input((5,))
    normed = keras.layers.BatchNormalization(name="norm")(inputs)
    return keras.Model(inputs, keras.layers.Dense(3, name="logits")(normed))


def batches_with(bad, row, *, at=1, num_batches=2):
    """Batches of four examples, two per tower; one entry of one batch is bad."""
    batches = helpers.dense_batches([4] * num_batches)
    batches[at][0][row, 0] = bad
    return batches


def all_values(step):
    return [
        variable.numpy()
        for variable in [*step.update.copies.shared.all, *step.update.copies.optimizer.variables]
    ]


def build(batches, optimizer=None, **options):
    model = normalised_model()
    tower_fn = helpers.classify(model, training=True)
    optimizer = optimizer or keras.optimizers.Adam(0.1)
    return helpers.build_step(tower_fn, model, optimizer, batches, 2, **options)


@pytest.mark.parametrize(
    "bad, row, tower, clip_norm",
    [
        (np.nan, 3, 1, 1.0),
        (np.inf, 0, 0, None),
        pytest.param(np.nan, 3, 1, None, marks=pytest.mark.slow),
        pytest.param(np.inf, 0, 0, 1.0, marks=pytest.mark.slow),
    ],
)
def test_one_bad_tower_stops_the_whole_update(bad, row, tower, clip_norm):
    """Also tower 1 alone: the decision is taken on the sum, not on tower 0's own gradient."""
    step, (good, not_finite) = build(batches_with(bad, row), clip_norm=clip_norm)
    assert bool(step(good, 1).finite)
    before = all_values(step)
    results = step(not_finite, 2)
    assert not bool(results.finite)
    norms = np.isfinite(results.towers.gradient_norm)
    assert norms.tolist() == [index != tower for index in range(2)]
    for old, new in zip(before, all_values(step), strict=True):
        np.testing.assert_array_equal(old, new)
    assert bool(step(good, 3).finite)
    assert any((old != new).any() for old, new in zip(before, all_values(step), strict=True))


@pytest.mark.parametrize(
    "at, num_batches", [pytest.param(1, 4, marks=pytest.mark.slow), (3, 4)], ids=["within", "last"]
)
def test_the_error_names_step_and_tower(at, num_batches):
    batches = batches_with(np.nan, 3, at=at, num_batches=num_batches)
    step, _ = build(batches)
    trainer = helpers.make_trainer(step, towers.batches_from(helpers.dataset_of(batches)))
    expected = (
        rf"not finite at step {at + 1}: tower 1 \(loss nan\)\. The update changed no variable"
    )
    with pytest.raises(NonFiniteGradientError, match=expected):
        trainer.train(epochs=1)


@pytest.mark.parametrize("per_call", [1, 4])
def test_a_training_that_goes_on_after_the_error_makes_each_update_once(per_call):
    """With one update a call the next one is done when the error is raised; all others stop."""
    batches = batches_with(np.nan, 3, at=1, num_batches=4)
    step, _ = build(batches, steps_per_call=per_call)
    reports = []
    trainer = helpers.make_trainer(step, helpers.dataset_of(batches), [reports.append])
    with pytest.raises(NonFiniteGradientError, match="at step 2"):
        trainer.train(epochs=1)
    done = 3 if per_call == 1 else 2
    assert trainer.position == towers.steps.Position(done, 0, done)
    assert trainer.train(epochs=1) == "1 epoch done"
    assert int(step.update.copies.optimizer.iterations) == 3
    assert [report.epoch_end for report in reports] == [False] * (len(reports) - 1) + [True]
    assert reports[-1].position == towers.steps.Position(4, 1, 0)


@pytest.mark.slow
def test_several_processes_name_the_tower_by_its_number_among_all():
    batches = batches_with(np.nan, 3)
    step, _ = build(batches, processes=helpers.OneOfTwo(index=1))
    dataset = towers.batches_from(helpers.dataset_of(batches))
    with pytest.raises(NonFiniteGradientError, match=r"step 2: tower 3 \(loss nan\)\."):
        helpers.make_trainer(step, dataset, split=towers.engine.split).train(epochs=1)

    def add_one_that_is_not(total):
        loss, weight, metrics, gradients, *states = total
        return loss, weight, metrics, [gradient / 0 for gradient in gradients], *states

    processes = helpers.OneOfTwo(add_one_that_is_not)
    step, _ = build(helpers.dense_batches([4]), processes=processes)
    dataset = towers.batches_from(helpers.dataset_of(helpers.dense_batches([4])))
    with pytest.raises(NonFiniteGradientError, match="on no tower of this process"):
        helpers.make_trainer(step, dataset, split=towers.engine.split).train(epochs=1)


def test_the_error_is_raised_also_when_an_action_stops_the_training():
    batches = batches_with(np.nan, 0, at=0)
    step, _ = build(batches)

    def stop(report):
        raise towers.StopTraining("enough")

    trainer = helpers.make_trainer(step, towers.batches_from(helpers.dataset_of(batches)), [stop])
    with pytest.raises(NonFiniteGradientError, match="step 1: tower 0"):
        trainer.train(epochs=1)


def scale_of(loss_scale):
    return float(loss_scale.read())


def test_overflow_halves_the_scale_and_calm_steps_double_it():
    loss_scale = LossScale(initial=8.0, growth_steps=2)
    scales = []
    for finite in [True, True, False, True, False, True, True, True]:
        loss_scale.update(tf.constant(finite))
        scales.append(scale_of(loss_scale))
    assert scales == [8, 16, 8, 8, 4, 4, 8, 8]


@pytest.mark.parametrize(("initial", "least"), [(1.5, 1.0), (0.5, 0.5)])
def test_the_scale_never_falls_below_one_or_its_initial_value(initial, least):
    loss_scale = LossScale(initial=initial)
    for _ in range(3):
        loss_scale.update(tf.constant(False))
    assert scale_of(loss_scale) == least
    loss_scale.update(tf.constant(True))
    assert scale_of(loss_scale) == least


@pytest.mark.parametrize(
    "wrong", [{"initial": 0.0}, {"initial": float("nan")}, {"growth_steps": 0}]
)
def test_a_loss_scale_that_makes_no_gradient_finite_is_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be .* Received"):
        LossScale(**wrong)


def test_a_step_that_overflows_is_skipped_and_the_run_goes_on():
    batches = batches_with(np.inf, 3, num_batches=3)
    loss_scale = LossScale(initial=8.0, growth_steps=1)
    step, _ = build(batches, loss_scale=loss_scale)
    reports = []
    trainer = helpers.make_trainer(
        step, towers.batches_from(helpers.dataset_of(batches)), [reports.append]
    )
    trainer.train(epochs=1)
    assert [bool(report.results.finite) for report in reports] == [True, False, True]
    assert [float(report.results.loss_scale) for report in reports] == [8, 16, 8]
    assert int(step.update.copies.optimizer.iterations) == 2


def test_overflow_at_scale_one_is_an_error():
    batches = batches_with(np.nan, 0)
    step, _ = build(batches, loss_scale=LossScale(initial=1.0))
    trainer = helpers.make_trainer(step, towers.batches_from(helpers.dataset_of(batches)))
    with pytest.raises(NonFiniteGradientError, match="step 2"):
        trainer.train(epochs=1)


def test_checkpoints_can_keep_the_scale():
    loss_scale, other = LossScale(initial=8.0, growth_steps=2), LossScale(growth_steps=2)
    loss_scale.update(tf.constant(True))
    for variable, value in zip(other.variables, loss_scale.variables, strict=True):
        variable.assign(value)
    other.update(tf.constant(True))
    assert scale_of(other) == 16.0


def test_the_factor_of_a_summed_loss_is_scale_over_the_weight_of_the_batch():
    scale, batch = tf.constant(2.0**15), Denominators(tf.constant(1024.0), ())
    assert float(gradient_factor(batch, scale)) == 32.0
    assert float(gradient_factor(Denominators(tf.constant(0.0), ()), scale)) == 2.0**15
    assert gradient_factor(batch, None) is gradient_factor(None, None) is None
    with pytest.raises(ValueError, match="needs the weight of the whole batch"):
        gradient_factor(None, scale)


def many_tokens():
    """One batch of 2048 rows with large inputs, 1024 rows for each tower."""
    ((inputs, labels),) = helpers.dense_batches([2048])
    return [(inputs * 10, labels)]


@pytest.mark.parametrize("initial, finite", [(2.0**15, True), (2.0**15 * 1024, False)])
def test_summed_loss_of_many_tokens_does_not_overflow_at_the_first_scale(initial, finite):
    set_precision("float16")
    model = helpers.dense_model()
    _, (results,) = helpers.train_on_towers(
        float32_loss(model),
        model,
        keras.optimizers.SGD(0.1),
        many_tokens(),
        2,
        loss_scale=LossScale(initial=initial),
    )
    assert bool(results.finite) is finite


def float32_loss(model):
    """A classifier whose logits are float32, as mixed precision wants for a loss."""

    def tower_fn(batch):
        inputs, labels = batch
        logits = tf.cast(model(inputs), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return tf.reduce_sum(losses), tf.size(labels), {}

    return tower_fn


@pytest.mark.parametrize("precision", ["float16", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_mixed_precision_trains_on_two_towers(precision):
    set_precision(precision)
    model = helpers.dense_model()
    loss_scale = LossScale() if precision == "float16" else None
    batches = helpers.dense_batches([8]) * 12
    weights, results = helpers.train_on_towers(
        float32_loss(model), model, keras.optimizers.Adam(0.05), batches, 2, loss_scale=loss_scale
    )
    assert {weight.dtype for weight in weights} == {np.dtype("float32")}
    assert model.output.dtype == precision
    assert all(bool(result.finite) for result in results)
    assert float(results[-1].loss) < 0.8 * float(results[0].loss)


def test_scaled_gradients_are_those_without_scale():
    """In float32 a power of two changes no digit, so that the weights are equal."""
    batches = helpers.dense_batches([8, 4])
    weights = []
    for loss_scale in (None, LossScale(initial=2.0**10)):
        keras.utils.set_random_seed(3)
        model = helpers.dense_model()
        optimizer = keras.optimizers.SGD(0.5)
        trained, _ = helpers.train_on_towers(
            helpers.classify(model), model, optimizer, batches, 2, loss_scale=loss_scale
        )
        weights.append(trained)
    helpers.assert_same_weights(*weights)


def test_unknown_precision_is_refused():
    with pytest.raises(ValueError, match=r"float32, float64, bfloat16, float16\. Received 'half'"):
        set_precision("half")


@pytest.mark.parametrize(
    ("scale", "clip_norm"),
    [pytest.param(1e18, 1.0, marks=pytest.mark.slow), (1e18, None), (1e30, 1.0)],
)
def test_a_finite_gradient_is_finite_also_if_its_square_is_not(scale, clip_norm):
    trained = []
    for num_towers in (None, 2):
        keras.utils.set_random_seed(3)
        model = helpers.dense_model()

        def tower_fn(batch, model=model):
            loss, weight, _ = helpers.classify(model)(batch)
            return tf.constant(scale) * loss, weight, {}

        batches = helpers.dense_batches([256])
        optimizer = keras.optimizers.SGD(0.5 if clip_norm else 0.5 / scale)
        if num_towers is None:
            small = keras.optimizers.SGD(0.5)
            options = {"clip_norm": 0.0 + clip_norm} if clip_norm else {}
            weights = train_scaled(helpers.classify(model), model, small, batches, options)
        else:
            weights, (results,) = helpers.train_on_towers(
                tower_fn, model, optimizer, batches, num_towers, clip_norm=clip_norm
            )
            assert bool(results.finite)
            assert np.isfinite(results.gradient_norm)
        trained.append(weights)
    helpers.assert_same_weights(*trained)


def train_scaled(tower_fn, model, optimizer, batches, options):
    """Trains plainly; any clipped gradient has the clipping norm, so that its scale cancels."""
    if not options:
        return helpers.train_plainly(tower_fn, model, optimizer, batches)[0]

    def scaled(batch):
        loss, weight, metrics = tower_fn(batch)
        return 1e6 * loss, weight, metrics

    return helpers.train_plainly(scaled, model, optimizer, batches, **options)[0]
