"""Steps of every recipe, as small as they can be, on batches that are made up."""

import types
import typing

import keras
import numpy as np
import tensorflow as tf

import towers
from towers.scripts.training.catalogue import find_recipe, with_fields
from towers.scripts.training.recipe import Data
from towers.scripts.training.session import carried_state, make_optimizer

TEXT = {"embedding_size": 8, "hidden_size": 8, "vocabulary_size": 50, "dropout_rate": 0.1}
LANGUAGE = {"hidden_size": 8, "vocabulary_size": 50, "dropout_rate": 0.1}
OWN_TEXT = {"hidden_size": 8, "embedding_size": 8, "vocabulary_size": 50, "window": 4, "heads": 2}
OWN_TEXT |= {"feed_forward_size": 8, "num_steps": 5}
SHAPES = {"filters": (2, 3), "hidden_size": 8, "clip_norm": 1.0}
IMAGE = (32, 32, 3)


class Size(typing.NamedTuple):
    """A recipe with the fields that make it small or large, and the sizes of its batches.

    Attributes:
        recipe: the recipe's name.
        fields: values of its fields.
        row: the shape of an image, or the number of tokens of a text.
        rows: examples of a tower.
    """

    recipe: str
    fields: dict[str, typing.Any]
    row: typing.Any
    rows: int = 4


SMALL = {
    "shapes": Size("shapes", SHAPES, IMAGE),
    "mnist": Size("mnist", {}, (28, 28, 1)),
    "cifar10_tutorial": Size("cifar10_tutorial", {}, (24, 24, 3)),
    "cifar10_resnet": Size("cifar10_resnet", {"depth": 8}, IMAGE),
    "chatbot": Size("chatbot", TEXT, 5),
    "chatbot_gru": Size("chatbot", {**TEXT, "cell": "gru", "label_smoothing": 0.1}, 5),
    "chatbot_fed": Size("chatbot", {**TEXT, "input_feeding": True, "attention": "bahdanau"}, 5),
    "chatbot_transformer": Size("chatbot", {**TEXT, "network": "transformer", "heads": 2}, 5),
    "ptb_small": Size("ptb_small", LANGUAGE, 5),
    "language_model": Size("language_model", OWN_TEXT, 5),
    "language_model_awd_lstm": Size("language_model", {**OWN_TEXT, "network": "awd_lstm"}, 5),
    "sentences": Size("ptb_small", {**LANGUAGE, "form": "sentences"}, 5),
}
PUBLISHED = {
    "cifar10_tutorial": Size("cifar10_tutorial", {}, (24, 24, 3), 128),
    "chatbot": Size(
        "chatbot",
        {"embedding_size": 256, "hidden_size": 256, "vocabulary_size": 20000, "dropout_rate": 0.3},
        16,
        64,
    ),
    "ptb_small": Size("ptb_small", {"vocabulary_size": 10000}, 20, 20),
    "cifar10_resnet": Size("cifar10_resnet", {}, IMAGE, 128),
}


class Task(typing.NamedTuple):
    """What every way to train takes: the attributes of `rivals.Task`."""

    recipe: typing.Any
    data: Data
    dataset: tf.data.Dataset
    make_optimizer: typing.Callable[[], keras.optimizers.Optimizer]


def make_data(size, num_towers, *, static):
    """Returns the recipe of a size, its data, and an endless data set of global batches."""
    recipe = with_fields(find_recipe(size.recipe), size.fields)
    rows = size.rows * num_towers
    batch = make_batch(recipe, size.row, rows)
    specs = tuple(
        tf.TensorSpec([None] * 2 if part.ndim == 2 else [None, *part.shape[1:]], part.dtype)
        for part in batch
    )
    dataset = tf.data.Dataset.from_tensors(batch).repeat()
    if not static:
        dataset = dataset.map(lambda *parts: tuple(map(forget_shape, parts, specs)))
    train = types.SimpleNamespace(steps_per_epoch=100, num_rows=rows)
    words = range(getattr(recipe.fields, "vocabulary_size", 0))
    text = types.SimpleNamespace(vocabulary=words)
    data = Data(train, train, text=text)
    return recipe, data, dataset


def forget_shape(tensor, spec):
    """Returns the tensor with the shape of the spec, of which less may be known."""
    return tf.ensure_shape(tf.py_function(lambda x: x, [tensor], tensor.dtype), spec.shape)


def make_batch(recipe, row, rows):
    """Returns a global batch of a recipe."""
    random = np.random.default_rng(0)
    if isinstance(row, tuple):
        images = random.normal(size=(rows, *row)).astype("float32")
        return images, random.integers(0, 10, rows).astype("int32")
    words = recipe.fields.vocabulary_size
    first, second = random.integers(4, words, (2, rows, row)).astype("int32")
    first[0, row // 2 :] = second[0, row // 2 :] = 0  # Padding.
    streams = getattr(recipe.fields, "form", "") == "streams"
    return (first, second, np.zeros(rows, bool)) if streams else (first, second)


def make_task(size, num_towers, *, static=False):
    """Returns what the ways to train take.

    Args:
        size: a `Size`.
        num_towers: of them.
        static: whether the shapes of batches are known when a step is traced, unlike real ones.
    """
    recipe, data, dataset = make_data(size, num_towers, static=static)
    return Task(recipe, data, dataset, lambda: make_optimizer(recipe.fields, data, 1))


def build_step(task, devices, parameters, *, precision="float32", processes=None, **options):
    """Returns the step of a recipe; `options` are those of `towers.StepOptions`."""
    towers.steps.set_precision(precision)
    placement = place(devices, parameters)
    with placement.scope():
        model = task.recipe.make_model(task.recipe.fields, task.data)
        optimizer = task.make_optimizer()
        loss_scale = towers.steps.LossScale() if precision == "float16" else None
    tower_fn = task.recipe.make_tower_fn(task.recipe.fields, model, True)
    options = towers.StepOptions(
        clip_norm=task.recipe.fields.clip_norm or None,
        carried=carried_state(task.recipe, model, task.data.train),
        loss_scale=loss_scale,
        probe=False,  # Pretended GPUs compute no values.
        **options,
    )
    return towers.build_train_step(
        tower_fn, model, optimizer, placement, task.dataset, options, processes
    )


def place(devices, parameters):
    """Returns a placement whose devices are trusted: pretended ones add nothing.

    The parameters `nccl` stand for `replicated` with that exchange.
    """
    placement = towers.Placement(devices, "cpu")
    if parameters == "nccl":
        object.__setattr__(placement, "exchange", "nccl")
        parameters = "replicated"
    object.__setattr__(placement, "parameters", parameters)
    return placement


def parameter_bytes(step):
    """Returns the bytes of the gradients of a step, each as large as its variable."""
    variables = step.update.copies.shared.trainable
    return sum(tf.as_dtype(one.dtype).size * int(np.prod(one.shape)) for one in variables)
