"""Made-up tasks: random data, and models of Keras's own layers, as users write them.

They are recipes that only benchmarks know. `make_model` and `arrays` need no TensorFlow: Keras on
another backend makes the same models.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from towers.ground.random_numbers import generator
from towers.scripts.options.setting import values_of
from towers.scripts.training import fields as common
from towers.scripts.training.catalogue import chosen_recipe, with_fields
from towers.scripts.training.fields import parse_overrides
from towers.scripts.training.options import RecipeOptions
from towers.scripts.training.recipe import Data, Recipe

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

NUM_BATCHES = 8


@dataclasses.dataclass(frozen=True)
class Fields(common.Fields):
    """The common fields, and:

    Attributes:
        steps_per_call: updates in one call of `fit`.
        longer: so many times the steps are timed.
    """

    steps_per_call: Annotated[int, common.POSITIVE] = 1
    longer: Annotated[int, common.POSITIVE] = 1


def recipes_of(options: RecipeOptions) -> list[Recipe]:
    """Returns the recipe that options name; for `made`, all that are made up and quick to time."""
    if options.recipe != "made":
        return [recipe_of(options)]
    chosen = [RECIPES[name] for name in SIZES if name != "made_resnet50"]
    return [*chosen, with_fields(RECIPES["made_mlp"], {"steps_per_call": 20})]


def recipe_of(options: RecipeOptions) -> Recipe:
    """Returns the recipe that options name, a made-up one or one of `towers recipes`."""
    if options.recipe not in RECIPES:
        return chosen_recipe(options)
    given = values_of(options)
    values = parse_overrides(Fields, options.overrides)
    if given.get("batch_size"):
        values["batch_size"] = given["batch_size"]
    return with_fields(RECIPES[options.recipe], values)


class Sizes(NamedTuple):
    """The random data of a task, by its rows.

    Attributes:
        inputs: of each input, its shape and the number of different ids; 0 for floats.
        labels: the shape of the labels and the number of classes.
    """

    inputs: tuple[tuple[tuple[int, ...], int], ...]
    labels: tuple[tuple[int, ...], int]


SIZES = {
    "made_chatbot": Sizes((((16,), 20_000), ((16,), 20_000)), ((16,), 20_000)),
    "made_language_model": Sizes((((20,), 10_000),), ((20,), 10_000)),
    "made_cnn": Sizes((((24, 24, 3), 0),), ((), 10)),
    "made_mlp": Sizes((((100,), 0),), ((), 2)),
    "made_resnet50": Sizes((((64, 64, 3), 0),), ((), 10)),
}


def arrays(name: str, num_rows: int, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Returns random inputs, an array or a tuple of arrays, and labels, int32."""
    random, sizes = generator(seed=seed), SIZES[name]

    def draw(shape: tuple[int, ...], number: int) -> np.ndarray:
        if number:
            return random.integers(0, number, (num_rows, *shape)).astype("int32")
        return random.random((num_rows, *shape), np.float32)

    inputs = tuple(draw(*one) for one in sizes.inputs)
    return inputs if len(inputs) > 1 else inputs[0], draw(*sizes.labels)


def chatbot() -> keras.Model:
    """An encoder and a decoder, an LSTM of 256 each, over 20,000 words."""
    import keras

    question, answer = (keras.Input([16], dtype="int32") for _ in range(2))
    encoded = keras.layers.Embedding(20_000, 256)(question)
    _, *state = keras.layers.LSTM(256, return_state=True)(encoded)
    decoded = keras.layers.Embedding(20_000, 256)(answer)
    decoded = keras.layers.LSTM(256, return_sequences=True)(decoded, initial_state=state)
    return keras.Model((question, answer), keras.layers.Dense(20_000)(decoded))


def language_model() -> keras.Model:
    """Two LSTMs of 200 over 10,000 words, as in the smallest network of Zaremba et al. 2014."""
    import keras

    recurrent = [keras.layers.LSTM(200, return_sequences=True) for _ in range(2)]
    words = keras.layers.Embedding(10_000, 200)
    return keras.Sequential([keras.Input([20]), words, *recurrent, keras.layers.Dense(10_000)])


def cnn() -> keras.Model:
    """The network of TensorFlow's CIFAR-10 tutorial, without its response normalization."""
    import keras
    from keras import layers

    body: list[Any] = [keras.Input([24, 24, 3])]
    for _ in range(2):
        body.append(layers.Conv2D(64, 5, padding="same", activation="relu"))
        body.append(layers.MaxPooling2D(3, 2, padding="same"))
    dense = [layers.Dense(units, activation="relu") for units in (384, 192)]
    return keras.Sequential([*body, layers.Flatten(), *dense, layers.Dense(10)])


def mlp() -> keras.Model:
    """A hidden layer of 64 between 100 numbers and two classes."""
    import keras

    layers = [keras.layers.Dense(64, activation="relu"), keras.layers.Dense(2)]
    return keras.Sequential([keras.Input([100]), *layers])


def resnet50() -> keras.Model:
    """Keras's ResNet50 for pictures of 64 x 64."""
    import keras

    return keras.applications.ResNet50(
        weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None
    )


class Batches(NamedTuple):
    """The batches of arrays, in their order; as in `towers.Batches`."""

    inputs: Any
    labels: np.ndarray
    size: int
    steps_per_epoch: int = NUM_BATCHES

    def __call__(self, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        import tensorflow as tf

        rows = tf.data.Dataset.from_tensor_slices((self.inputs, self.labels))
        return rows.batch(self.size, drop_remainder=False).skip(first_step)


def make_tower_fn(fields: Fields, model: keras.Model, training: bool) -> Callable[..., Any]:
    """Returns the tower function: a mean over all labels, with the accuracy."""
    import tensorflow as tf

    def tower_fn(shard: Any) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        inputs, labels = shard
        logits = model(inputs, training=training)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        hits = tf.argmax(logits, -1, tf.int32) == labels
        accuracy = tf.reduce_sum(tf.cast(hits, losses.dtype))
        count = tf.cast(tf.size(losses), losses.dtype)
        return tf.reduce_sum(losses), count, {"accuracy": accuracy}

    return tower_fn


def make_data(fields: Fields, folder: object, seed: int, name: str) -> Data:
    """Returns the same batches for training and testing."""
    inputs, labels = arrays(name, NUM_BATCHES * fields.batch_size, seed)
    batches = Batches(inputs, labels, fields.batch_size)
    return Data(batches, batches)


def made(name: str, model: Callable[[], keras.Model], batch_size: int, **fields: Any) -> Recipe:
    """Returns the recipe of a task."""
    return Recipe(
        name=name,
        fields=Fields(batch_size=batch_size, **fields),
        make_data=functools.partial(make_data, name=name),
        make_model=functools.partial(make_model, make=model),
        make_tower_fn=make_tower_fn,
    )


def make_model(fields: Fields, data: Data | None, make: Callable[[], keras.Model]) -> keras.Model:
    """Returns the model."""
    return make()


RECIPES = {
    one.name: one
    for one in (
        made("made_chatbot", chatbot, 64),
        made("made_language_model", language_model, 20),
        made("made_cnn", cnn, 128),
        made("made_mlp", mlp, 256, longer=20),
        made("made_resnet50", resnet50, 16),
    )
}
