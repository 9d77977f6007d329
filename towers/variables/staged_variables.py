"""The shared variables of towers of several devices: each is read on the device of its stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.devices.stages import Stages
from towers.variables.shared_variables import SharedVariables


class StagedVariables(SharedVariables):
    """The shared variables, of which a tower reads those of each stage with its label.

    Args:
        shared: the variables.
        stages: their stages.
    """

    def __init__(self, shared: SharedVariables, stages: Stages):
        variables = [*shared.trainable, *shared.states, *shared.seeds]
        tables = [one for one in variables if shared.is_used_by_handle(one)]
        super().__init__(variables, tables, shared.captured)
        self._places = stages.places(self.all)

    def read(
        self,
        copies: Sequence[keras.Variable] | None = None,
        arrived: Mapping[int, tf.Tensor] | None = None,
    ) -> dict[int, Any]:
        """Returns each variable's value on the device of its stage, by the variable's id.

        Args:
            copies: as in `SharedVariables.read`.
            arrived: not used: what was sent to a tower is on its first device.
        """
        values: dict[int, Any] = {}
        pairs = list(zip(self.all, copies or self.all, strict=True))
        for stage, places in enumerate(self._places):
            own = [pairs[place] for place in places]
            tables = [variable for variable, _ in own if self.is_used_by_handle(variable)]
            part = SharedVariables([variable for variable, _ in own], tables)
            with tf.name_scope(f"stage_{stage}"):
                values |= part.read([copy for _, copy in own])
        return values
