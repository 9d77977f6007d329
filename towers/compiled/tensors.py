"""The tensors of a batch: what is None is left out on their way, what is sparse becomes dense."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf


def dense_specs(spec: Any) -> Any:
    """Returns the specs of a batch whose tensors are dense; None for what it leaves out."""

    def dense(part: Any) -> Any:
        if is_left_out(part):
            return None
        is_sparse = isinstance(part, tf.SparseTensorSpec)
        return tf.TensorSpec(part.shape, part.dtype) if is_sparse else part

    return tf.nest.map_structure(dense, spec)


def is_left_out(part: Any) -> bool:
    """Returns whether a part of a batch, or its spec, is None or what Keras takes for None."""
    kinds = (tf.NoneTensorSpec, tf.OptionalSpec, tf.experimental.Optional)
    return part is None or isinstance(part, kinds)


def tensors_only(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a data set of batches as `present` returns them, their tensors dense."""
    spec = dataset.element_spec
    if all(
        isinstance(part, (tf.TensorSpec, tf.RaggedTensorSpec)) for part in tf.nest.flatten(spec)
    ):
        return dataset
    is_tuple = type(spec) is tuple  # `map` passes a tuple as several arguments.

    @tf.autograph.experimental.do_not_convert
    def convert(*batch: Any) -> Any:
        return present(tf.nest.map_structure(as_dense, batch if is_tuple else batch[0]))

    return dataset.map(convert)


def present(batch: Any) -> Any:
    """Returns a batch itself, or, if parts of it are left out, the tuple of all others."""
    parts = tf.nest.flatten(batch)
    found = tuple(part for part in parts if not is_left_out(part))
    return batch if len(found) == len(parts) else found


def restored(spec: Any, batch: Any) -> Any:
    """Returns the batch of which `present` returned this, with None for what it leaves out.

    Args:
        spec: the specs of the batch, None for what it leaves out.
        batch: what `present` returned.
    """
    return filled(spec, batch) if None in tf.nest.flatten(spec) else batch


def filled(spec: Any, parts: Iterable[Any]) -> Any:
    """Returns a batch of these parts, in the order of its specs; None for what it leaves out."""
    parts = iter(parts)
    whole = [None if part is None else next(parts) for part in tf.nest.flatten(spec)]
    return tf.nest.pack_sequence_as(spec, whole)


def as_dense(part: Any) -> Any:
    """Returns a part of a batch as a dense tensor, of TensorFlow's or SciPy's sparse ones too."""
    if is_left_out(part):
        return None
    if isinstance(part, tf.SparseTensor):
        return tf.sparse.to_dense(tf.sparse.reorder(part))
    return tf.convert_to_tensor(part.toarray() if hasattr(part, "toarray") else part)
