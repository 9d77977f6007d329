"""The exchanges by name: ways to sum gradients between copies of the variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import tensorflow as tf

from towers.travel.collectives import Group, Packed, are_gpus, fault_of_group
from towers.travel.gradients import Gradient


class SumsOfPacks(Protocol):
    """Devices that sum the dense gradients of their towers over all processes."""

    def pack(self, tower_gradients: Sequence[Sequence[Gradient]]) -> list[Packed]:
        """Returns each tower's gradients in packs; called once all towers are traced.

        Args:
            tower_gradients: one list per tower of this process, in the order of the variables.
        """

    def sum_packed(self, packed: Sequence[Packed]) -> tuple[list[list[Gradient]], list[tf.Tensor]]:
        """Returns the sums over the towers of all processes, and the first tower's as packs.

        The sums are a list for each copy of the variables; a gradient that is in no pack is None.
        """


class ExchangeKind(NamedTuple):
    """A way to sum gradients.

    Attributes:
        group: returns what sums, from the towers' devices and the number of processes; None for
            copies between devices (`sum_in_packs`), which every other exchange leaves to this.
        fault: returns why these devices cannot sum in this way, or None.
        remedy: returns what mends a fault of these devices, or an empty string.
        keeps_bits: whether the sums do not depend on the number of towers (law 12).
    """

    group: Callable[[Sequence[str], int], SumsOfPacks] | None = None
    fault: Callable[[tuple[str, ...]], str | None] = lambda devices: None
    remedy: Callable[[tuple[str, ...]], str] = lambda devices: ""
    keeps_bits: bool = False


def remedy_of_group(devices: tuple[str, ...]) -> str:
    """Returns what GPUs that cannot sum by NCCL may lack; other devices lack nothing."""
    return (
        "Install NCCL (`pip install tensorflow[and-cuda]` brings it)" if are_gpus(devices) else ""
    )


EXCHANGES = {
    "packs": ExchangeKind(keeps_bits=True),
    "nccl": ExchangeKind(Group, fault_of_group, remedy_of_group),
}


def check_group(exchange: str, devices: tuple[str, ...]) -> None:
    """Raises ValueError unless these devices can sum in this way, and says what to do."""
    kind = EXCHANGES[exchange]
    fault = kind.fault(devices)
    if fault is not None:
        remedy = kind.remedy(devices)
        use = f"{remedy}, or use" if remedy else "Use"
        raise ValueError(
            f"exchange={exchange!r} cannot sum between {', '.join(devices)}: {fault}. "
            f"{use} exchange='packs' (--exchange packs), which needs nothing."
        )
