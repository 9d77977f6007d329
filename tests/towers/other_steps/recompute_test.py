"""Recomputed activations give the gradients of kept ones."""

import keras
import pytest
import tensorflow as tf

import towers
from tests import helpers

WAYS = {
    "remat": keras.remat,
    "recompute_grad": tf.recompute_grad,
    "recompute": towers.steps.recompute,
}


def case(wrap, *, draws=1, embedding=False, own=False):
    """A classifier whose hidden block has BatchNorm and dropout, and its tower function.

    The dropout is one of Keras, or draws by a state of its own.
    """
    keras.utils.set_random_seed(1)
    hidden = keras.layers.Dense(8, activation="tanh", name="hidden")
    norm, drop = keras.layers.BatchNormalization(name="norm"), keras.layers.Dropout(0.5)
    table = keras.layers.Embedding(3, 8, name="table")
    logits = keras.layers.Dense(3, name="logits")
    layers = [hidden, norm, drop, logits, *([table] if embedding else [])]
    for layer, width in zip(layers, (5, 8, 8, 8, 3), strict=False):
        layer.build((None, width))

    def block(inputs, labels):
        outputs = norm(hidden(inputs), training=True)
        if embedding:
            outputs += table(labels)
        for _ in range(draws):
            outputs = tf.nn.dropout(outputs, 0.5) if own else drop(outputs, training=True)
        return outputs

    block = wrap(block)

    def tower_fn(batch):
        inputs, labels = batch
        outputs = logits(block(inputs, labels))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
        return tf.reduce_sum(losses), tf.size(labels), {}

    return tower_fn, [variable for layer in layers for variable in layer.variables]


def train(wrap, parameters="auto", *, draws=1, embedding=False, own=False, **options):
    """Returns the values of the variables after three steps on two towers, and the step."""
    keras.config.set_dtype_policy("float64")
    with helpers.tower_placement(2, parameters).scope():
        tower_fn, variables = case(wrap, draws=draws, embedding=embedding, own=own)
    batches, optimizer = (
        helpers.dense_batches([8, 7, 8], dtype="float64"),
        keras.optimizers.Adam(0.1),
    )
    step, shards = helpers.build_step(
        tower_fn, variables, optimizer, batches, 2, parameters=parameters, **options
    )
    for number, parts in enumerate(shards, 1):
        step(parts, number)
    values = [variable.numpy() for variable in variables if variable.dtype == "float64"]
    return values, step


def products(step):
    """Returns how many matrix products the step's graph has in forward and backward passes."""
    return len([op for op in step.graph.get_operations() if op.type == "MatMul"])


PLACES = {
    "micro-batches": ("cpu", {"accumulate": 2}),
    "replicated": ("replicated", {}),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "place"),
    [(way, place) for way in WAYS for place in PLACES],
)
def test_recomputed_activations_give_the_same_gradients(way, place):
    """BatchNorm's averages move once, and the second pass draws the masks of the first."""
    parameters, options = PLACES[place]
    expected, kept = train(lambda function: function, parameters, **options)
    actual, recomputed = train(WAYS[way], parameters, **options)
    helpers.assert_same_weights(actual, expected, float64=True)
    num_parts = 2 * options.get("accumulate", 1)
    assert products(recomputed) >= products(kept) + num_parts  # The hidden layer's, again.


@pytest.mark.slow
@pytest.mark.parametrize(("embedding", "own"), [(False, False), (True, False), (True, True)])
def test_what_is_recomputed_may_draw_often(embedding, own):
    expected, _ = train(lambda function: function, draws=3, embedding=embedding, own=own)
    actual, _ = train(towers.steps.recompute, draws=3, embedding=embedding, own=own)
    helpers.assert_same_weights(actual, expected, float64=True)


@pytest.mark.parametrize("way, own", [("remat", False), ("recompute_grad", False), ("remat", True)])
def test_draws_that_tensorflow_would_not_repeat_are_refused(way, own):
    with pytest.raises(RuntimeError, match=r"recomputes a function.*Use towers\.steps\.recompute"):
        train(WAYS[way], draws=2, own=own)


def test_layers_under_a_remat_scope_train_as_without():
    trained = []
    for mode in (None, "activations"):
        keras.utils.set_random_seed(1)
        with keras.RematScope(mode=mode):
            model = helpers.dense_model()
        batches, optimizer = helpers.dense_batches([8, 7]), keras.optimizers.SGD(0.5)
        weights, _ = helpers.train_on_towers(helpers.classify(model), model, optimizer, batches, 2)
        trained.append(weights)
    helpers.assert_same_weights(*trained)


class Product(keras.layers.Layer):
    """A product whose custom gradient takes the kernel from around it."""

    def __init__(self, where):
        super().__init__()
        self.where = where
        self.kernel = self.add_weight(shape=(5, 3), name="kernel")

    def product(self, inputs):
        @tf.custom_gradient
        def run(inputs):
            kernel = tf.convert_to_tensor(self.kernel)

            def backward(upstream, variables=None):
                gradient = tf.transpose(inputs) @ upstream
                return upstream @ tf.transpose(kernel), [gradient] * len(variables or ())

            return inputs @ kernel, backward

        return run(inputs)

    def call(self, inputs, training=False):
        if self.where == "branch":
            empty = tf.equal(tf.size(inputs), 0)
            return tf.cond(empty, lambda: inputs[:, :3], lambda: self.product(inputs))
        if self.where == "loop":
            start = (0, tf.zeros_like(inputs[:, :3]))
            add = lambda turn, total: (turn + 1, total + self.product(inputs))  # noqa: E731
            return tf.while_loop(lambda turn, _: turn < 2, add, start)[1]
        # A use outside gives the variable a gradient, but not all of it.
        return self.product(inputs) + inputs @ self.kernel


@pytest.mark.parametrize("where", ["plain", "branch", "loop"])
def test_variables_of_a_custom_gradient_are_trained(where):
    trained = []
    for train_so in (helpers.train_plainly, helpers.train_on_towers):
        keras.utils.set_random_seed(1)
        layer = Product(where)
        options = {} if train_so is helpers.train_plainly else {"num_towers": 2}
        batches, optimizer = helpers.dense_batches([8, 7]), keras.optimizers.SGD(0.5)
        trained.append(train_so(helpers.classify(layer), layer, optimizer, batches, **options)[0])
    helpers.assert_same_weights(*trained)


@pytest.mark.parametrize("kind", ["compiled", "asynchronous"])
def test_where_no_custom_gradient_can_capture_it_is_refused(kind):
    layer = Product("plain")
    dataset = helpers.dataset_of(helpers.dense_batches([8]))
    build = towers.steps.build_async_step if kind == "asynchronous" else towers.build_train_step
    with pytest.raises(ValueError, match=r"product/kernel\. Use towers\.steps\.recompute"):
        build(
            helpers.classify(layer), layer, keras.optimizers.SGD(0.1), helpers.tower_placement(1),
            dataset, towers.StepOptions(compiled=kind == "compiled"),
        )  # fmt: skip


def test_spectral_normalization_is_refused_in_what_is_recomputed():
    layer = keras.layers.SpectralNormalization(keras.layers.Dense(3))
    layer.build((None, 5))
    model = keras.Sequential([layer])
    product = towers.steps.recompute(lambda inputs: layer(inputs, training=True))

    def tower_fn(batch):
        return tf.reduce_sum(product(batch[0])), tf.size(batch[1]), {}

    with pytest.raises(RuntimeError, match=r"assigns trainable variables.*outside it"):
        helpers.build_step(
            tower_fn, model, keras.optimizers.SGD(0.1), helpers.dense_batches([8]), 2
        )
