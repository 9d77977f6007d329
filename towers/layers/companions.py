"""What goes with a tensor: its Keras mask, and the logits of which it is a softmax or a sigmoid.

Keras's cross-entropies compute from logits where they find them: an attribute that Keras's own
softmax and sigmoid set; in a graph also what TensorFlow's op took that made the tensor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from towers.ground.hooks import Hook
from towers.ground.private_apis import (
    GET_LOGITS,
    KERAS_LOGITS,
    KERAS_MASK,
    gen_math_ops,
    gen_nn_ops,
    nn,
)

OPS = {"Softmax": Hook(gen_nn_ops, "softmax"), "Sigmoid": Hook(gen_math_ops, "sigmoid")}
OP_LOGITS = {kind: f"_{kind.lower()}_of" for kind in OPS}
LOGITS = Hook(nn, GET_LOGITS)
NAMES = (KERAS_MASK, KERAS_LOGITS, *OP_LOGITS.values())


def companions_of(tensor: Any) -> dict[str, tf.Tensor]:
    """Returns the tensors that go with one, by the names of its attributes."""
    found = {name: getattr(tensor, name, None) for name in NAMES}
    is_known = found[KERAS_LOGITS] is not None  # Then Keras asks for no op.
    return {
        name: one for name, one in found.items()
        if isinstance(one, tf.Tensor) and not (is_known and name in OP_LOGITS.values())
    }  # fmt: skip


@contextlib.contextmanager
def logits_kept(is_wanted: Callable[[], bool]) -> Iterator[None]:
    """The scope in which what an op took stays with what it made, and Keras finds it there.

    Args:
        is_wanted: whether Keras would ask for the op.
    """

    def keep(name: str) -> Callable[..., Any]:
        def make(original: Any, features: Any, *args: Any, **options: Any) -> Any:
            output = original(features, *args, **options)
            if is_wanted() and isinstance(features, tf.Tensor):
                setattr(output, name, features)
            return output

        return make

    with contextlib.ExitStack() as scopes:
        scopes.enter_context(LOGITS.through(find_logits))
        for kind, op in OPS.items():
            scopes.enter_context(op.through(keep(OP_LOGITS[kind])))
        yield


def find_logits(original: Any, output: Any, from_logits: bool, op_type: str, name: str) -> Any:
    """Returns what Keras computes a cross-entropy from, and whether these are logits."""
    logits = companions_of(output).get(OP_LOGITS[op_type])
    if logits is None:
        return original(output, from_logits, op_type, name)
    setattr(output, KERAS_LOGITS, logits)
    try:
        return original(output, from_logits, op_type, name)
    finally:
        delattr(output, KERAS_LOGITS)


@contextlib.contextmanager
def logits_left() -> Iterator[None]:
    """The scope in which ops are not asked, as Keras does not without a graph."""
    with contextlib.ExitStack() as scopes:
        for hook in (LOGITS, *OPS.values()):
            scopes.enter_context(hook.through(None))
        yield
