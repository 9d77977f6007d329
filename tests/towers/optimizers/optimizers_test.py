"""Each optimizer against its own NumPy reference and against the Keras optimizer it stands for."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from towers.optimizers.fused import apply_gradients
from towers.optimizers.optimizers import Adam, AdamW, build_optimizer
from towers.optimizers.schedules import build_schedule

NUM_ROWS, NUM_STEPS = 7, 6
NAMES = ("sgd", "momentum", "nesterov", "adagrad", "adam", "adamw", "lazy_adam")
STOCK = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "nesterov": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adam": lambda: keras.optimizers.Adam(0.1),
    "adamw": lambda: keras.optimizers.AdamW(0.1, weight_decay=0.004),
    "lazy_adam": lambda: keras.optimizers.Adam(0.1),
}
TOLERANCES = {"float32": 1e-6, "float64": 1e-12}


def rounded(number):
    """Keras takes the learning rate, the momentum and the base of the powers through float32."""
    return float(np.float32(number))


RATE, MOMENTUM, DECAY = rounded(0.1), rounded(0.9), rounded(0.004)


def numpy_sgd(weights, gradients):
    for gradient in gradients:
        weights = weights - RATE * gradient
    return weights


def numpy_momentum(weights, gradients, nesterov=False):
    velocity = np.zeros_like(weights)
    for gradient in gradients:
        velocity = MOMENTUM * velocity - RATE * gradient
        weights = weights + (MOMENTUM * velocity - RATE * gradient if nesterov else velocity)
    return weights


def numpy_nesterov(weights, gradients):
    return numpy_momentum(weights, gradients, nesterov=True)


def numpy_adagrad(weights, gradients):
    accumulator = np.full_like(weights, rounded(0.1))
    for gradient in gradients:
        accumulator = accumulator + gradient**2
        weights = weights - RATE * gradient / np.sqrt(accumulator + 1e-7)
    return weights


def numpy_adam(weights, gradients, beta_1=0.9, beta_2=0.999, *, decay=0.0, lazy=False):
    m, v = np.zeros_like(weights), np.zeros_like(weights)
    for step, gradient in enumerate(gradients, start=1):
        weights = weights - weights * decay * RATE
        has_gradient = gradient.any(-1, keepdims=True) if lazy else True
        alpha = RATE * np.sqrt(1 - rounded(0.999) ** step) / (1 - rounded(0.9) ** step)
        m = np.where(has_gradient, m + (gradient - m) * (1 - beta_1), m)
        v = np.where(has_gradient, v + (gradient**2 - v) * (1 - beta_2), v)
        weights = weights - np.where(has_gradient, m * alpha / (np.sqrt(v) + 1e-7), 0)
    return weights


def numpy_adamw(weights, gradients, *betas):
    return numpy_adam(weights, gradients, *betas, decay=DECAY)


def numpy_lazy_adam(weights, gradients, *betas):
    return numpy_adam(weights, gradients, *betas, lazy=True)


REFERENCES = {name: globals()[f"numpy_{name}"] for name in NAMES}


def initial_weights(dtype):
    return np.random.default_rng(0).normal(size=(NUM_ROWS, 3)).astype(dtype)


def random_gradients(dtype, sparse):
    """Gradients [NUM_ROWS, 3], if sparse with one to three rows that are not zero."""
    random = np.random.default_rng(1)
    gradients = random.normal(size=(NUM_STEPS, NUM_ROWS, 3)).astype(dtype)
    for step, gradient in enumerate(gradients):
        if sparse:
            resting = random.permutation(NUM_ROWS)[1 + step % 3 :]
            gradient[resting] = 0
    return list(gradients)


def to_slices(gradient):
    """The rows of a gradient that are not zero, the last first."""
    rows = np.flatnonzero(gradient.any(-1))[::-1]
    return tf.IndexedSlices(
        tf.constant(gradient[rows]), tf.constant(rows), tf.constant(gradient.shape)
    )


def train(optimizer, weights, gradients, variable=None, apply=apply_gradients):
    """Returns the variable after one compiled step per gradient."""
    if variable is None:
        variable = keras.Variable(weights, dtype=weights.dtype, name="table")
        optimizer.build([variable])
    step = tf.function(
        lambda gradient: apply(optimizer, [(gradient, variable)]), reduce_retracing=True
    )
    for gradient in gradients:
        step(gradient)
    return variable


train_stock = functools.partial(train, apply=keras.optimizers.Optimizer.apply_gradients)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", NAMES)
def test_update_equals_numpy(name, sparse, dtype):
    weights, gradients = initial_weights(dtype), random_gradients(dtype, sparse)
    given = [to_slices(gradient) if sparse else gradient for gradient in gradients]
    variable = train(build_optimizer(name, 0.1), weights, given)
    # A float32 kernel has float32 betas throughout, Keras in the powers only.
    betas = (rounded(0.9), rounded(0.999)) if dtype == "float32" and "adam" in name else ()
    expected = REFERENCES[name](weights.astype("float64"), gradients, *betas)
    tolerance = TOLERANCES[dtype] * np.abs(expected).max()
    np.testing.assert_allclose(variable.numpy(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_float64_update_equals_keras(name):
    weights, gradients = initial_weights("float64"), random_gradients("float64", False)
    variable = train(build_optimizer(name, 0.1), weights, gradients)
    stock = train_stock(STOCK[name](), weights, gradients)
    np.testing.assert_allclose(variable.numpy(), stock.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_float32_update_equals_keras_to_a_few_units_in_the_last_place(name):
    weights, gradients = initial_weights("float32"), random_gradients("float32", False)
    optimizer = build_optimizer(name, 0.01)
    variable, stock = train(optimizer, weights, gradients), STOCK[name]()
    stock.learning_rate = 0.01
    expected = train_stock(stock, weights, gradients).numpy()
    unit = np.spacing(np.abs(expected).max())
    np.testing.assert_allclose(variable.numpy(), expected, rtol=0, atol=4 * unit)


@pytest.mark.parametrize("name", NAMES)
def test_state_interchanges_with_keras(name):
    weights, gradients = initial_weights("float64"), random_gradients("float64", False)
    stock, optimizer = STOCK[name](), build_optimizer(name, 0.1)
    before = train_stock(stock, weights, gradients[:3])
    variable = keras.Variable(before.numpy(), dtype="float64", name="table")
    optimizer.build([variable])
    described = [
        [(slot.name, slot.shape, slot.dtype) for slot in made.variables]
        for made in (stock, optimizer)
    ]
    assert described[0] == described[1]
    optimizer.set_weights([slot.numpy() for slot in stock.variables])
    train(optimizer, None, gradients[3:], variable)
    train_stock(stock, None, gradients[3:], before)
    np.testing.assert_allclose(variable.numpy(), before.numpy(), rtol=1e-12)
    for slot, expected in zip(optimizer.variables, stock.variables, strict=True):
        np.testing.assert_allclose(slot.numpy(), expected.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_config_is_that_of_keras(name):
    optimizer = build_optimizer(name, 0.1)
    config, expected = optimizer.get_config(), STOCK[name]().get_config()
    assert type(optimizer).from_config(dict(config)).get_config() == config
    assert config.pop("lazy", False) == (name == "lazy_adam")
    assert config == {**expected, "name": optimizer.name}


def test_lazy_rows_rest_where_default_rows_go_on():
    weights = initial_weights("float64")
    gradients = np.zeros((2, NUM_ROWS, 3))
    gradients[0, [1, 4]] = gradients[1, [4, 5]] = 1.0
    slices = [to_slices(gradient) for gradient in gradients]
    after_one = train(Adam(0.1, lazy=True), weights, slices[:1]).numpy()
    lazy = train(Adam(0.1, lazy=True), weights, slices).numpy()
    default = train(Adam(0.1), weights, slices).numpy()
    np.testing.assert_array_equal(lazy[1], after_one[1])
    assert (default[1] != after_one[1]).all()
    np.testing.assert_array_equal(lazy[[0, 2, 3, 6]], weights[[0, 2, 3, 6]])


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_lazy_update_of_all_rows_is_the_default_update(dtype):
    weights, gradients = initial_weights(dtype), random_gradients(dtype, False)
    slices = [to_slices(gradient) for gradient in gradients]
    lazy, default = (train(Adam(0.1, lazy=lazy), weights, slices) for lazy in (True, False))
    tolerance = 4 * np.spacing(np.abs(default.numpy()).max())
    np.testing.assert_allclose(lazy.numpy(), default.numpy(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "adam", "adamw"])
def test_repeated_rows_add_up(name):
    weights = initial_weights("float64")
    values = np.random.default_rng(2).normal(size=(4, 3))
    repeated = tf.IndexedSlices(
        tf.constant(values), tf.constant([5, 2, 5, 0]), tf.constant([NUM_ROWS, 3])
    )
    summed = np.zeros((NUM_ROWS, 3))
    np.add.at(summed, [5, 2, 5, 0], values)
    variable = train(build_optimizer(name, 0.1), weights, [repeated] * 2)
    expected = REFERENCES[name](weights, [summed] * 2)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_without_rows_is_an_update_by_zero(name):
    weights = initial_weights("float64")
    empty = to_slices(np.zeros_like(weights))
    optimizer = build_optimizer(name, 0.1)
    variable = train(optimizer, weights, [empty])
    expected = REFERENCES[name](weights, [np.zeros_like(weights)])
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-12)
    assert optimizer.iterations == 1


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", NAMES)
def test_updates_are_the_same_bits_in_every_run(name, sparse):
    weights, gradients = initial_weights("float32"), random_gradients("float32", sparse)
    given = [to_slices(gradient) if sparse else gradient for gradient in gradients]
    first, second = (train(build_optimizer(name, 0.1), weights, given) for _ in range(2))
    np.testing.assert_array_equal(first.numpy(), second.numpy())


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", NAMES)
def test_variable_on_another_device_is_updated_where_it_lives(name, sparse):
    weights, gradients = initial_weights("float64"), random_gradients("float64", sparse)
    given = [to_slices(gradient) if sparse else gradient for gradient in gradients]
    optimizer = build_optimizer(name, 0.1)
    with tf.device("/CPU:2"):
        variable = keras.Variable(weights, dtype="float64")
        optimizer.build([variable])
    train(optimizer, None, given, variable)
    expected = REFERENCES[name](weights, gradients)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=0, atol=1e-11)
    slots = [slot.value.device for slot in optimizer.variables if slot.shape == weights.shape]
    assert {variable.value.device, *slots} == {"/job:localhost/replica:0/task:0/device:CPU:2"}


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("sgd", "ResourceApplyGradientDescent"),
        ("momentum", "ResourceApplyKerasMomentum"),
        ("nesterov", "ResourceApplyKerasMomentum"),
        ("adam", "ResourceApplyAdam"),
        ("adamw", "ResourceApplyAdam"),
        ("lazy_adam", "ResourceApplyAdam"),
    ],
)
def test_dense_update_is_one_kernel(name, kernel):
    optimizer, variable = build_optimizer(name, 0.1), keras.Variable(np.ones([3]))
    optimizer.build([variable])
    step = tf.function(lambda: apply_gradients(optimizer, [(tf.ones([3]), variable)]))
    kinds = [op.type for op in step.get_concrete_function().graph.get_operations()]
    assert kinds.count(kernel) == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["sgd", "momentum", "adagrad", "adam"])
def test_half_precision_variables_take_the_way_of_keras(name, dtype):
    weights = tf.cast(initial_weights("float32"), dtype).numpy()
    gradients = [tf.cast(gradient, dtype) for gradient in random_gradients("float32", False)]
    variable = train(build_optimizer(name, 0.1), weights, gradients)
    stock = train_stock(STOCK[name](), weights, gradients)
    np.testing.assert_array_equal(variable.numpy(), stock.numpy())


def test_amsgrad_takes_the_way_of_keras_with_sparse_gradients_made_dense():
    weights, gradients = initial_weights("float64"), random_gradients("float64", True)
    slices = [to_slices(gradient) for gradient in gradients]
    variable = train(Adam(0.1, amsgrad=True), weights, slices)
    stock = train_stock(keras.optimizers.Adam(0.1, amsgrad=True), weights, gradients)
    np.testing.assert_array_equal(variable.numpy(), stock.numpy())
    with pytest.raises(ValueError, match=r"lazy=True is not available with amsgrad=True"):
        Adam(0.1, amsgrad=True, lazy=True)


@pytest.mark.parametrize(
    "options", [{"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.2}, {"use_ema": True}]
)
def test_options_of_keras_still_hold(options):
    weights, gradients = initial_weights("float64"), random_gradients("float64", False)
    variable = train(AdamW(0.1, **options), weights, gradients)
    stock = train_stock(keras.optimizers.AdamW(0.1, **options), weights, gradients)
    np.testing.assert_allclose(variable.numpy(), stock.numpy(), rtol=1e-12)


def test_schedule_gives_the_learning_rate_of_each_step():
    schedule = build_schedule("constant", 1.0, total_steps=10, warmup_steps=4)
    variable = train(build_optimizer("sgd", schedule), np.zeros([1], "float32"), [tf.ones([1])] * 4)
    assert variable.numpy() == -(0.25 + 0.5 + 0.75 + 1.0)


@pytest.mark.parametrize(
    ("name", "learning_rate", "options", "message"),
    [
        ("lazyadam", 0.1, {}, r"optimizer must be one of sgd, .*Did you mean lazy_adam\?"),
        ("adam", 0.0, {}, r"learning_rate must be above 0 and finite. Received 0.0"),
        ("adam", lambda: 0.1, {}, r"learning_rate must be above 0 and finite. Received <function"),
        ("adam", "0.1", {}, r"learning_rate must be above 0 and finite. Received '0.1'"),
        ("adamw", 0.1, {"weight_decay": None}, r"weight_decay must be a finite number.*None"),
        ("momentum", 0.1, {"momentum": 1.0}, r"momentum must be in \[0, 1\). Received 1.0"),
        ("adam", 0.1, {"beta_2": -0.1}, r"beta_2 must be in \[0, 1\). Received -0.1"),
        ("adam", 0.1, {"epsilon": 0.0}, r"epsilon must be above 0 and finite. Received 0.0"),
        ("adamw", 0.1, {"weight_decay": -1.0}, r"weight_decay must not be negative"),
    ],
)
def test_wrong_options_are_refused(name, learning_rate, options, message):
    with pytest.raises(ValueError, match=message):
        build_optimizer(name, learning_rate, **options)
