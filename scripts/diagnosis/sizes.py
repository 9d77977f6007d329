"""The sizes of a recipe's training: what its variables take on each device, and what travels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import towers
from towers.scripts.training.options import TrainOptions
from towers.scripts.training.run_output import total_bytes
from towers.scripts.training.session import Session, build_step


class Sizes(NamedTuple):
    """Numbers of bytes, and of parameters.

    Attributes:
        parameters: the trainable numbers.
        variables: bytes of all variables of the model.
        slots: bytes of the optimizer's variables.
        read: bytes of the variables that each tower reads in a step; tables that are only looked up
            are left out, since their rows travel.
        gradients: bytes of the gradients of what is read.
    """

    parameters: int
    variables: int
    slots: int
    read: int
    gradients: int


class Need(NamedTuple):
    """What a placement needs, in bytes; activations are not counted.

    Attributes:
        place: cpu, tower0 or replicated.
        host: on the CPU.
        first_tower, other_towers: on tower 0, and on each other tower.
        moved: between devices in a step, over all towers.
    """

    place: str
    host: int
    first_tower: int
    other_towers: int
    moved: int


def measure(session: Session, options: TrainOptions, num_stages: int = 1) -> list[Sizes]:
    """Returns the sizes of a session's training, for each stage of the towers.

    The session is on towers of one device. Its step is built, not run. The optimizer's variables
    are like those that it trains, so that a stage has as large a share of them.

    Raises:
        ValueError: they cannot share the model's layers.
    """
    tower = [f"/CPU:{number}" for number in range(num_stages)]
    stages = towers.Placement([tower], "cpu").place(session.model)
    step = build_step(session, options)
    shared, slots = step.update.copies.shared, step.update.copies.optimizer.variables
    trained, kept = total_bytes(shared.trainable), total_bytes(slots)
    sizes = []
    columns = map(stages.indices, (session.model.variables, shared.all))
    for owned, indices in zip(*columns, strict=True):
        own = [session.model.variables[index] for index in owned]
        used = [shared.all[index] for index in indices]
        trainable = [one for one in used if one.trainable]
        read = [one for one in used if not shared.is_used_by_handle(one)]
        sizes.append(
            Sizes(
                parameters=sum(math.prod(one.shape) for one in trainable),
                variables=total_bytes(own),
                slots=kept * total_bytes(trainable) // trained,
                read=total_bytes(read),
                gradients=total_bytes(one for one in read if one.trainable),
            )
        )
    return sizes


def add_sizes(stages: Sequence[Sizes]) -> Sizes:
    """Returns the sizes of all stages together."""
    return Sizes(*map(sum, zip(*stages, strict=True)))


def needs(sizes: Sizes, num_towers: int) -> Iterator[Need]:
    """Yields what each placement needs.

    With the parameters in one place, every tower elsewhere reads them and sends its gradients. With
    a copy on each tower, gradients are summed in a ring: each tower sends 2 (n - 1) / n of them.
    """
    kept = sizes.variables + sizes.slots
    tower = sizes.read + sizes.gradients
    others = num_towers - 1
    yield Need("cpu", kept, tower, tower if others else 0, num_towers * tower)
    yield Need("tower0", 0, kept + tower, tower if others else 0, others * tower)
    own = kept + sizes.gradients
    yield Need("replicated", 0, own, own if others else 0, 2 * others * sizes.gradients)


def as_json(stages: Sequence[Sizes], num_towers: int) -> dict[str, Any]:
    """Returns sizes and needs of all devices together, and of each stage if there are several."""
    total = add_sizes(stages)
    found = total._asdict()
    found["placements"] = [need._asdict() for need in needs(total, num_towers)]
    if len(stages) > 1:
        found["stages"] = [as_json([stage], num_towers) for stage in stages]
    return found


def rows(found: Sequence[Need]) -> Iterator[Sequence[str]]:
    """Yields the rows of a table of needs."""
    yield ("parameters", "on the CPU", "on tower 0", "on each other", "moved in a step")
    for need in found:
        yield (need.place, *map(megabytes, need[1:]))


def megabytes(size: int) -> str:
    """Returns a number of bytes for people.

    >>> megabytes(1_234_567)
    '1.2 MB'
    """
    return f"{size / 1e6:.1f} MB"
