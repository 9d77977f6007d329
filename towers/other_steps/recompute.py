"""Recomputation: a function's activations are computed again for the backward pass, not kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from towers.variables.tower_scope import TowerScope, current_scope


def recompute(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function with activations that a tower computes again for the backward pass.

    A tower then keeps only the function's arguments and results, in exchange for a second forward
    pass (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"). The second pass uses
    the same values of the variables and draws the same random numbers, so that the gradients are
    those without recomputation. Outside of a tower, the function is called as it is.

    Args:
        function: a function or a Keras layer, which takes and returns nests of tensors.

    >>> double = recompute(lambda inputs: 2 * inputs)
    >>> double(tf.constant(3.0)).numpy().item()
    6.0
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        scope = current_scope()
        if scope is None:
            return function(*args, **kwargs)
        num_versions = scope.num_versions
        outputs = call_to_repeat(scope, function, (args, kwargs))
        if scope.num_versions > num_versions:
            raise RuntimeError(
                "towers.steps.recompute received a function that assigns trainable variables, as "
                "SpectralNormalization does, so their gradients would be lost. Call such layers "
                "outside it."
            )
        return outputs

    return call


def call_to_repeat(scope: TowerScope, function: Callable[..., Any], arguments: Any) -> Any:
    """Returns a function's outputs in a tower; it is called again for their gradients.

    All that has a gradient is an input: tensors among the arguments, and the values of variables.
    """
    values, leaves = dict(scope.state_mapping), tf.nest.flatten(arguments)
    positions = [index for index, leaf in enumerate(leaves) if is_source(leaf)]
    trainable = [id(variable) for variable in scope.shared.trainable]
    trained = [one for one in trainable if is_source(values.get(one))]

    def call(inputs: Sequence[tf.Tensor]) -> Any:
        """Returns the function's outputs as tensors, with some of its arguments replaced."""
        replaced = dict(zip(positions, inputs, strict=False))
        given = [replaced.get(index, leaf) for index, leaf in enumerate(leaves)]
        args, kwargs = tf.nest.pack_sequence_as(arguments, given)
        return tf.nest.map_structure(tf.convert_to_tensor, function(*args, **kwargs))

    @tf.custom_gradient
    def run(*inputs: tf.Tensor) -> tuple[Any, Callable[..., Any]]:
        def backward(*upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            with tf.control_dependencies(upstream), tf.GradientTape() as tape:
                again = list(map(tf.identity, inputs))
                tape.watch(again)
                own = dict(zip(trained, again[len(positions) :], strict=True))
                with scope.at({**values, **own}):
                    outputs = call(again)
            return gradients_of(tape, outputs, upstream, again, variables)

        return call(inputs), backward

    return run(*(leaves[index] for index in positions), *(values[one] for one in trained))


def gradients_of(
    tape: tf.GradientTape,
    outputs: Any,
    upstream: Sequence[tf.Tensor],
    inputs: Sequence[tf.Tensor],
    variables: Sequence[tf.Variable],
) -> Any:
    """Returns what the backward pass of a `tf.custom_gradient` does; None without connection.

    The tape has recorded how the outputs were computed from inputs and variables.
    """
    pairs = zip(tf.nest.flatten(outputs), upstream, strict=True)
    targets, given = zip(*(pair for pair in pairs if is_source(pair[0])), strict=True)
    found = tape.gradient(targets, [*inputs, *variables], output_gradients=given)
    of_inputs, of_variables = found[: len(inputs)], found[len(inputs) :]
    return (of_inputs, of_variables) if variables else of_inputs


def is_source(value: Any) -> bool:
    """Returns whether a value is a tensor that can have a gradient."""
    return isinstance(value, tf.Tensor) and value.dtype.is_floating
