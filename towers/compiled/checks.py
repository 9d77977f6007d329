"""What a compiled model may not hold: refused by name before anything is trained."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from towers.compiled.data import Data, preprocesses
from towers.ground.arguments import check_at_least, check_choice, check_fraction
from towers.ground.private_apis import (
    ALL_OBJECTS,
    compile_loss_of,
    compile_metrics_of,
    flat_losses,
    flatten_layers,
    loss_options,
    loss_tracker,
    metric_function,
    metrics_by_output,
)
from towers.saving.checkpoint_files import tensorflow_variable
from towers.variables.optimizers import check_gradients, unlisted
from towers.variables.tower_scope import is_of

OWN_STEPS = {
    "fit": ("train_step", "make_train_function", "compute_loss", "compute_metrics"),
    "evaluate": ("test_step", "make_test_function", "compute_loss", "compute_metrics"),
}
OWN = {*OWN_STEPS, *(name for names in OWN_STEPS.values() for name in names)}
# Arguments of which there is at least 1, or None; and those that may be one of some words.
COUNTS = ("batch_size", "steps", "steps_per_epoch", "validation_batch_size", "validation_steps")
WORDS = {"verbose": ("auto",), "shuffle": ("batch",)}
REDUCTIONS = ("sum", "sum_over_batch_size", "mean", "mean_with_sample_weight")
# Functions of Keras that return no value for each example, or one that depends on the others.
# Those of hinges take labels of 0 and 1 for such of -1 and 1, if all of the batch are.
OF_A_BATCH = ("circle", "dice", "hinge", "squared_hinge", "tversky")
# Those whose labels have an axis less than the outputs, which they check; others compare elements.
OF_CLASSES = ("ctc", "sparse_categorical_crossentropy")
# Those that bring labels [rows] and outputs [rows, 1] to one rank.
RANKED = (
    "accuracy", "binary_accuracy", "cosine_similarity", "huber", "log_cosh", "mean_absolute_error",
    "mean_absolute_percentage_error", "mean_squared_error", "mean_squared_logarithmic_error",
)  # fmt: skip
OF_A_SCALE = ("apply", "apply_gradients", "scale_loss", "check_finite")
# Activity regularisers that are means over the rows; that of most layers is none.
ADDITIVE = (type(None), keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)


OWNERS = (keras.losses.Loss, keras.metrics.Metric, keras.layers.Layer)  # They may hold variables.


class NeedsLayersError(Exception):
    """A model whose losses and metrics cannot be summed on towers: its layers run there alone.

    The message is the reason, the end of a sentence.
    """


def check_model(model: keras.Model, purpose: str, **given: Any) -> None:
    """Raises ValueError for what is no compiled Keras model, and for wrong arguments."""
    if not isinstance(model, keras.Model):
        raise ValueError(f"towers.{purpose} takes a Keras model first. Received {type(model)}.")
    check_no_strategy(model)
    if purpose != "predict" and not model.compiled:
        raise ValueError(f"Call model.compile() before towers.{purpose}(model, ...).")
    if purpose == "fit":
        check_gradients(model.trainable_variables)
    check_arguments(**given)


def check_own_code(model: keras.Model, purpose: str, repeated_rows: str = "sum") -> None:
    """Raises NeedsLayersError for a model with steps of its own, or that runs without a graph.

    So it does if Keras's own update is asked for.
    """
    if repeated_rows != "sum":
        raise NeedsLayersError(f"repeated_rows={repeated_rows!r} asks for Keras's own update")
    if has_own(model, purpose):
        raise NeedsLayersError(own_method(model, purpose))
    for name in OWN_STEPS[purpose]:
        if is_overridden(model, name):
            raise NeedsLayersError(own_method(model, name))
    if model.run_eagerly:
        raise NeedsLayersError("the model was compiled with run_eagerly=True")
    if purpose == "fit":
        check_own_scaling(model.optimizer)
        check_listed(model)


def check_listed(model: keras.Model) -> None:
    """Raises NeedsLayersError for an optimizer with variables that it does not list."""
    optimizer = model.optimizer
    if optimizer is not None and model.built and not optimizer.built:
        optimizer = built_copy(model)
    if optimizer is not None and list(unlisted(optimizer, model.variables)):
        name = type(optimizer).__name__
        raise NeedsLayersError(f"{name} holds variables outside of its `variables`")


def built_copy(model: keras.Model) -> keras.optimizers.Optimizer:
    """Returns a copy of the model's optimizer, built for one number: a callback may freeze layers.

    One that cannot be copied is built itself.
    """
    optimizer = model.optimizer
    try:
        copy = type(optimizer).from_config(optimizer.get_config())
        copy.build([keras.Variable([0.0])])
    except Exception:  # Of any kind: it is the user's code.
        optimizer.build(model.trainable_variables)
        return optimizer
    return copy


def own_method(owner: Any, name: str) -> str:
    """Returns the reason that an object has a method of its own, the end of a sentence."""
    return f"{type(owner).__name__} has a {name}() of its own"


def has_own(model: keras.Model, name: str) -> bool:
    """Returns whether a model has its own `fit` or `evaluate`, which does more than preprocess."""
    return is_overridden(model, name) and not preprocesses(model)


def is_overridden(owner: Any, name: str, base: type = keras.Model) -> bool:
    """Returns whether a model or an optimizer has its own method instead of Keras's."""
    return getattr(type(owner), name) is not getattr(base, name) or name in vars(owner)


def check_own_scaling(optimizer: keras.optimizers.Optimizer) -> None:
    """Raises NeedsLayersError for an optimizer's own methods that the towers' update would pass by.

    With a loss scale, Keras calls the `apply` of the optimizer within, not its `apply_gradients`.
    """
    kinds = keras.optimizers
    methods = [(optimizer, "scale_loss", kinds.Optimizer)]
    if isinstance(optimizer, kinds.LossScaleOptimizer):
        methods = [(optimizer, name, kinds.LossScaleOptimizer) for name in OF_A_SCALE]
        methods.append((optimizer.inner_optimizer, "apply_gradients", kinds.Optimizer))
    for owner, name, base in methods:
        if is_overridden(owner, name, base):
            raise NeedsLayersError(own_method(owner, name))


def check_no_strategy(model: keras.Model) -> None:
    """Raises ValueError within a `tf.distribute.Strategy`, and for variables of its replicas."""
    variables = [*model.variables, *getattr(getattr(model, "optimizer", None), "variables", ())]
    values = tf.distribute.DistributedValues
    is_replicated = any(isinstance(tensorflow_variable(one), values) for one in variables)
    if is_replicated or tf.distribute.has_strategy():
        found = "model that was made or compiled" if is_replicated else "call"
        raise ValueError(
            f"Towers share plain variables. Received a {found} in the scope of a "
            "tf.distribute.Strategy; make, compile and train the model outside, and let `towers` "
            "name the devices."
        )


def check_arguments(**given: Any) -> None:
    """Raises ValueError for arguments of Keras's methods that it misreads or stumbles over late."""
    for name in ("epochs", "initial_epoch", "seed"):
        if name in given:
            check_at_least(0, **{name: given[name]})
    for name in COUNTS:
        if given.get(name) is not None:
            check_at_least(1, **{name: given[name]})
    check_fraction(validation_split=given.get("validation_split", 0))
    for name, words in WORDS.items():
        if isinstance(value := given.get(name), str):
            check_choice(name, value, words)
    weights = given.get("class_weight")
    if not isinstance(weights, (Mapping, type(None))):
        raise ValueError(
            "class_weight takes a weight for each class, such as {0: 1.0, 1: 2.5}. Received "
            f"{weights!r:.80}."
        )
    callbacks = given.get("callbacks")
    for one in keras.tree.flatten(callbacks or []):
        if isinstance(one, type) or not hasattr(one, "set_model"):
            name = "LambdaCallback" if callable(one) else "EarlyStopping"
            name = one.__name__ if isinstance(one, type) else name
            raise ValueError(
                f"callbacks takes objects of Keras's, such as {name}(...). Received {one!r:.80}."
            )


def check_labels(model: keras.Model, data: Data, name: str = "y") -> None:
    """Raises ValueError for data without labels, where Keras's own code gives them to a loss.

    It names the argument that has the labels.
    """
    _, labels, _ = keras.utils.unpack_x_y_sample_weight(data.spec)
    compares = getattr(model, "loss", None) and not any(is_overridden(model, one) for one in OWN)
    if compares and labels is None:
        raise ValueError(
            f"The loss compares outputs with labels. Received data without any; pass {name}, or a "
            "data set of pairs (x, y)."
        )


def check_built(model: keras.Model, y: Any) -> None:
    """Raises NeedsLayersError for what a built model holds that towers cannot add.

    Of the labels of a batch only the structure counts.
    """
    losses = compile_loss_of(model)
    parts = [] if losses is None else flat_losses(losses)
    for one in parts:
        check_loss(one.loss, one.loss_weights)
    if len(parts) > 1 and not keras.tree.is_nested(y):
        raise NeedsLayersError("an output has several losses, of which Keras may train one")
    for layer in keeping_rows(model):
        raise NeedsLayersError(f"the layer '{layer.name}' keeps a state for each row")
    for layer in flatten_layers(model):
        if type(getattr(layer, "activity_regularizer", None)) not in ADDITIVE:
            raise NeedsLayersError(
                f"the layer '{layer.name}' regularises its outputs in its own way"
            )
    known = [loss_tracker(model), compile_metrics_of(model)]
    known += [] if losses is None else losses.metrics
    for metric in model.metrics:
        if not any(metric is one for one in known):
            raise NeedsLayersError(f"the model or a layer owns the metric '{metric.name}'")


def keeping_rows(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers that carry a state of each row from one batch to the next."""
    return [layer for layer in flatten_layers(model) if getattr(layer, "stateful", False)]


def check_loss(loss: keras.losses.Loss, weight: Any) -> None:
    """Raises NeedsLayersError for a loss whose denominator is unknown, or of pairs of examples."""
    if function_name(loss) in OF_A_BATCH and loss_options(loss).get("axis") is None:
        raise NeedsLayersError(f"the loss '{loss.name}' is one of the whole batch")
    if type(loss).__call__ is not keras.losses.Loss.__call__ or loss.reduction not in REDUCTIONS:
        raise NeedsLayersError(f"the loss '{loss.name}' reduces its values in a way of its own")
    if not isinstance(weight, (int, float, np.number, type(None))):
        raise NeedsLayersError(f"the weight of the loss '{loss.name}' is a variable")


def function_name(loss: keras.losses.Loss) -> str:
    """Returns the name of the function that a loss wraps, as those of Keras do, or nothing."""
    return getattr(getattr(loss, "fn", None), "__name__", "")


def labels_line_up(y: Any, outputs: Any) -> bool:
    """Returns whether what compares elements compares those of the same row.

    TensorFlow lines up the last axes of tensors of different ranks: labels [rows] would be taken
    for those of each row wherever a shard has as many rows as a row has outputs. Of outputs [rows]
    Keras's losses make one number.

    Args:
        y, outputs: nests of symbolic tensors; each label has to line up with its output, or with
            any if they are nested otherwise.
    """

    def ranks(tensor: Any) -> set[int]:
        shape = getattr(tensor, "shape", ())
        return {len(shape), len(shape) - (tuple(shape[-1:]) == (1,))}

    labels, found = ([ranks(one) for one in keras.tree.flatten(nest)] for nest in (y, outputs))
    if any(max(one) < 2 for one in found):
        return False
    try:
        keras.tree.assert_same_paths(y, outputs)
    except ValueError:
        return all(any(one & other for other in found) for one in labels)
    return all(one & other for one, other in zip(labels, found, strict=True))


def check_metrics(model: keras.Model, y: Any, outputs: Any) -> None:
    """Raises NeedsLayersError for a metric that may not be a sum over the shards of a batch.

    Those that Keras wrote are, unless they reduce the rows, or are used more than once; functions
    of the user's are asked. Arguments are as in `labels_line_up`.
    """
    metrics = compile_metrics_of(model)
    variables = [] if metrics is None else list(map(id, metrics.variables))
    for metric, labels, output in metrics_by_output(metrics, y, outputs):
        if not is_of_own_function(metric) and not adds_up(metric, labels, output):
            raise NeedsLayersError(
                f"the metric '{metric.name}' may not add up over a batch's parts"
            )
        if any(variables.count(id(variable)) > 1 for variable in metric.variables):
            raise NeedsLayersError(f"the metric '{metric.name}' is used more than once")


def adds_up(metric: keras.metrics.Metric, labels: Any, output: Any) -> bool:
    """Returns whether a metric of these labels and outputs is surely a sum over the rows."""
    is_flat, is_flat_output = (len(getattr(one, "shape", ())) == 1 for one in (labels, output))
    line_up = labels_line_up(labels, output)
    return not is_flat_output and is_of_keras(metric) and is_by_rows(metric, is_flat, line_up)


def is_of_own_function(metric: keras.metrics.Metric) -> bool:
    """Returns whether Keras takes a mean of what a function of the user's computes."""
    is_mean = type(metric) is keras.metrics.MeanMetricWrapper
    return (
        is_mean and not is_of_keras(metric) and not isinstance(metric_function(metric)[0], OWNERS)
    )


def is_of_keras(metric: keras.metrics.Metric) -> bool:
    """Returns whether Keras wrote the metric, and the function by rows that it wraps."""
    if type(metric) is keras.metrics.MeanMetricWrapper:
        fn, _ = metric_function(metric)
        return inspect.isfunction(fn) and is_of(fn, "keras.src.")
    return type(metric) in ALL_OBJECTS


def is_by_rows(metric: keras.metrics.Metric, has_flat_labels: bool, line_up: bool) -> bool:
    """Returns whether a metric of Keras's surely has a value for each row.

    It has none if it reduces another axis than the last one, nor a mean if labels and outputs do
    not line up. Some, such as `Poisson`, compare labels [rows] with each row of the outputs
    [rows, 1], or take their maximum over the rows, such as `CategoricalAccuracy`.
    """
    if not isinstance(metric, keras.metrics.MeanMetricWrapper):
        return line_up or not isinstance(metric, keras.metrics.Mean)
    fn, options = metric_function(metric)
    name = getattr(fn, "__name__", "")
    if options.get("axis", -1) != -1 or name in OF_A_BATCH:
        return False
    is_ranked = line_up and (not has_flat_labels or name in RANKED)
    return is_ranked or name.startswith("sparse_")
