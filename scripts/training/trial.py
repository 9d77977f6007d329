"""The placement of a run: `--parameters auto` on several GPUs takes the faster one, once."""

from __future__ import annotations

from typing import Any

import keras

import towers
from towers.scripts.shown import show
from towers.scripts.training.engines import is_one_of_several
from towers.scripts.training.options import TrainOptions
from towers.scripts.training.recipe import Data, Recipe
from towers.scripts.training.session import Session, build_step


class MeasuredPlacement:
    """Chooses the placement of a run; `auto` on several GPUs measures it, and it stays.

    Args:
        recipe, options: as given.
        before: what the run measured before, or None; with as many towers it is taken again.

    Attributes:
        record: what the run keeps of the measurement, or None without one.
    """

    def __init__(self, recipe: Recipe, options: TrainOptions, before: dict[str, Any] | None):
        self._recipe, self._options = recipe, options
        self.record = before

    def __call__(self, devices: towers.devices.Devices, data: Data) -> towers.Placement:
        """Returns the placement; a line says what was measured."""
        policy, exchange = self._options.devices.parameters, self._options.engine.exchange
        if self.applies_to(devices):
            before = self.record
            if not before or before["towers"] != len(devices.towers) or self._refuses(before):
                before = self._measure(devices, data)
            self.record = before
            policy, exchange = before["parameters"], before.get("exchange", "packs")
        return towers.Placement(devices.groups, policy, "nccl" if exchange == "nccl" else "packs")

    def _refuses(self, before: dict[str, Any]) -> bool:
        """Returns whether the run was given another exchange than the one that was measured."""
        exchange = before.get("exchange", "packs")
        return self._options.engine.exchange not in ("auto", exchange)

    def applies_to(self, devices: towers.devices.Devices) -> bool:
        """Returns whether there is something to measure.

        The sums of `--deterministic` runs depend on no machine's speed, and only synchronous towers
        can have copies. Where one GPU is too small for the model, a trial would be as well.
        """
        engine = self._options.engine
        return (
            self._options.devices.parameters == "auto"
            and engine.exchange != "nccl"  # It needs copies.
            and (engine.engine, engine.updates) == ("towers", "sync")
            and not engine.deterministic
            and len(devices.towers) > 1
            and len(devices.groups[0]) == 1
            and all("GPU" in device for device in devices.towers)
        )

    def _measure(self, devices: towers.devices.Devices, data: Data) -> dict[str, Any]:
        trial = towers.steps.try_parameters(
            lambda placement: self._build(devices, data, placement),
            devices.towers,
            data.train,
            self._policies(),
        )
        keras.utils.set_random_seed(self._options.seed)
        if not self._options.output.quiet:
            show(trial.description, flush=True)
        return {
            "towers": len(devices.towers),
            "parameters": trial.parameters,
            "exchange": trial.exchange,
            "milliseconds": {policy: round(ms, 3) for policy, ms in trial.milliseconds.items()},
        }

    def _policies(self) -> tuple[str, ...] | None:
        """Returns what to try; None for all. Several processes must sum in the same way."""
        if self._options.engine.exchange == "packs" or is_one_of_several():
            return ("cpu", "replicated")
        return None

    def _build(
        self, devices: towers.devices.Devices, data: Data, placement: towers.Placement
    ) -> towers.engine.TrainStep:
        """Returns the step of a model of its own, in this process alone."""
        with placement.scope():
            model = self._recipe.make_model(self._recipe.fields, data)
        session = Session(
            self._recipe, data, model, devices, placement, towers.processes.Processes(), dict, None
        )
        return build_step(session, self._options)
