"""The trial: where the parameters may live, timed with scratch models to find the fastest."""

from __future__ import annotations

import contextlib
import gc
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from towers.batches.feed import open_feed
from towers.batches.shards import Batches, Shard, split
from towers.batches.sources import as_batches
from towers.devices.placement import Placement
from towers.ground.arguments import check_choice
from towers.ground.host import are_all
from towers.ground.private_apis import get_global_attribute
from towers.step.builder import TrainStep
from towers.travel.collectives import fault_of_group

NUM_BATCHES = 4  # Batches may differ in shape.
ROUNDS = 4  # The first one warms up.
# By policy: the placement's parameters and exchange, and how a line says them.
PLACES = {
    "cpu": ("cpu", "packs", "on the CPU"),
    "tower0": ("tower0", "packs", "on the first tower"),
    "replicated": ("replicated", "packs", "with a copy on every tower"),
    "nccl": ("replicated", "nccl", "with a copy on every tower, summed by collective ops"),
}
# Two GPUs swap halves of each pack, as NCCL does; n of them need n (n - 1) copies, twice a pack.
MANY_TOWERS = 4


class Trial(NamedTuple):
    """How long a step takes, by where the parameters live.

    Attributes:
        milliseconds: by policy of `PLACES`, the time of a step; infinite if the devices' memory
            is too small.
    """

    milliseconds: dict[str, float]

    @property
    def fastest(self) -> str:
        """The policy with the fastest step; of equal ones, the first."""
        return min(self.milliseconds, key=lambda policy: self.milliseconds[policy])

    @property
    def parameters(self) -> str:
        """Where the parameters live in the fastest step, as in `Placement`."""
        return PLACES[self.fastest][0]

    @property
    def exchange(self) -> str:
        """How the fastest step sums gradients, as in `Placement`."""
        return PLACES[self.fastest][1]

    @property
    def description(self) -> str:
        """One line with every time, that of the choice first."""
        parts = []
        for policy in sorted(self.milliseconds, key=lambda policy: policy != self.fastest):
            time_of = self.milliseconds[policy]
            known = f"{time_of:.1f} ms a step" if math.isfinite(time_of) else "too little memory"
            parts.append(f"{PLACES[policy][2]}: {known}")
        return f"parameters {'; '.join(parts)}"


def try_parameters(
    build: Callable[[Placement], TrainStep],
    devices: Sequence[str],
    batches: Batches | tf.data.Dataset,
    policies: Sequence[str] | None = None,
) -> Trial:
    """Returns how long a step takes, by where the parameters live.

    The steps train scratch models on the first batches. Nothing else changes: what is made
    afterwards has the names and the random numbers that it would have had without the trial.

    Args:
        build: makes a model, its optimizer and its step for a placement.
        devices: the towers' devices.
        batches: as in `build_train_step`.
        policies: which of `PLACES` to try. By default `cpu` and `replicated`, and `nccl` on four
            or more GPUs that can. One that the devices cannot be trusted with is left out, with
            the placement's warning.

    Raises:
        ValueError: there is no such policy.
        tf.errors.ResourceExhaustedError: the devices' memory is too small for every policy.
    """
    policies = policies_for(devices) if policies is None else policies
    for policy in policies:
        check_choice("policies", policy, PLACES)
    first = split(as_batches(batches)(0, 0).take(NUM_BATCHES), len(devices))
    with open_feed(first, devices) as feed:
        placed = list(feed)
    seconds: dict[str, float] = {}
    with unnoticed():
        for policy in policies:
            parameters, exchange, _ = PLACES[policy]
            placement = Placement(devices, parameters, exchange)
            if placement.parameters == parameters:
                seconds[policy] = time_step(build, placement, placed)
            gc.collect()  # The next model needs the memory of this one.
    if not any(map(math.isfinite, seconds.values())):
        raise tf.errors.ResourceExhaustedError(
            None, None, "A step needs more memory than the devices have. Use a smaller batch."
        )
    return Trial({policy: round(1000 * time_of, 3) for policy, time_of in seconds.items()})


def policies_for(devices: Sequence[str]) -> list[str]:
    """Returns what to try on these devices."""
    policies = ["cpu", "replicated"]
    many = len(devices) >= MANY_TOWERS and are_all("GPU", devices)
    return [*policies, "nccl"] if many and fault_of_group(tuple(devices)) is None else policies


def time_step(
    build: Callable[[Placement], TrainStep],
    placement: Placement,
    batches: Sequence[tuple[Shard, ...]],
) -> float:
    """Returns the seconds of a step of a new model; infinite if the memory is too small."""
    number, rounds = 0, []
    try:
        step = build(placement)
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for shards in batches:
                number += 1
                results = step(shards, number)
            float(results.loss)  # Waits for the devices.
            rounds.append((time.perf_counter() - started) / len(batches))
    except tf.errors.ResourceExhaustedError:
        return math.inf
    return min(rounds[1:])


@contextlib.contextmanager
def unnoticed() -> Iterator[None]:
    """The scope after which Keras numbers names, and Python and NumPy draw, as before it."""
    numbers = dict(get_global_attribute("object_name_uids") or {})
    states = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        uids = get_global_attribute("object_name_uids")
        if uids is not None:
            uids.clear()
            uids.update(numbers)
