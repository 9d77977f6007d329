"""The first law on this machine: equal steps on one tower and on all end with equal weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

import towers
from towers.scripts.diagnosis.findings import OK, WARNING, WRONG, Finding

STEPS, ROWS, FEATURES, CLASSES = 3, 37, 16, 5  # A batch that no number of towers divides.
TOLERANCE = 1e-12  # Relative to the largest weight, in float64: see docs/explanations/laws.md.
REMEDY = "run `towers train ... --parameters cpu`, and report this with the lines above"


def compare_steps(devices: Sequence[str]) -> Iterator[Finding]:
    """Yields whether all towers train as one, for each place of the parameters and by NCCL."""
    expected = weights_after_steps(devices[:1], "cpu")
    for parameters in ("cpu", "tower0", "replicated"):
        found = weights_after_steps(devices, parameters)
        yield compare_weights(f"{len(devices)} towers, parameters {parameters}", expected, found)
    what = f"{len(devices)} towers, exchange nccl"
    try:
        found = weights_after_steps(devices, "replicated", "nccl")
    except ValueError as error:  # The group of devices cannot sum; the message has the remedy.
        yield Finding(WARNING, what, "cannot be used", str(error))
    else:
        yield compare_weights(what, expected, found)


def compare_weights(what: str, expected: Sequence[Any], found: Sequence[Any]) -> Finding:
    """Returns whether weights are those that are expected, within the tolerance."""
    largest = max(np.abs(weight).max() for weight in expected)
    pairs = zip(expected, found, strict=True)
    difference = max(np.abs(one - other).max() for one, other in pairs) / largest
    text = f"weights differ from one tower's by {difference:.1e} of the largest"
    if difference <= TOLERANCE:
        return Finding(OK, what, text)
    return Finding(WRONG, what, f"{text}, more than {TOLERANCE:g}", REMEDY)


def check_copies(devices: Sequence[str]) -> Finding:
    """Returns whether known values that are summed over all devices come out right on each."""
    wrong = towers.engine.wrong_sums(tuple(devices))
    if not wrong:
        return Finding(OK, "copies", f"correct between {len(devices)} devices")
    return Finding(
        WRONG, "copies", f"wrong sums on {', '.join(wrong)}",
        "use --parameters cpu; many machines need the IOMMU or PCI access control switched off",
    )  # fmt: skip


def weights_after_steps(
    devices: Sequence[str], parameters: str, exchange: str = "packs"
) -> list[np.ndarray]:
    """Returns a small network's weights after a few steps, in float64."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(8, "tanh", dtype="float64"),
              keras.layers.Dense(CLASSES, dtype="float64")]  # fmt: skip
    with towers.Placement(tuple(devices), parameters, exchange).scope():
        model = keras.Sequential([keras.Input((FEATURES,), dtype="float64"), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")
    model.compile(keras.optimizers.SGD(0.5), loss)
    random = np.random.default_rng(0)
    features = random.normal(size=(STEPS * ROWS, FEATURES))
    labels = random.integers(CLASSES, size=STEPS * ROWS)
    towers.fit(
        model, features, labels, batch_size=ROWS, shuffle=False, verbose=0,
        towers=devices, parameters=parameters, exchange=exchange,
    )  # fmt: skip
    return [variable.numpy() for variable in model.variables]
