"""The plan of a run: what it is to be, told by its options alone; no file is touched."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, NamedTuple

import towers
from towers.scripts.options.setting import values_of
from towers.scripts.training.catalogue import with_recorded
from towers.scripts.training.engine import check_engine
from towers.scripts.training.options import TrainOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.run_directory import RunDirectory


class Plan(NamedTuple):
    """What a run will do.

    Attributes:
        asked: what to train, as the command says it.
        recipe: the same with the fields of the run.
        options: how, with the data of the run.
        directory: where its files are.
        is_chief: whether this process writes its files; others of several do not.
        recorded: what run.json says of the run that goes on, {} without one. Several processes
            take the chief's, whose disk alone may hold what was saved.
        kept: data and fields of that run, in place of what the command alone means, by name.
    """

    asked: Recipe
    recipe: Recipe
    options: TrainOptions
    directory: RunDirectory
    is_chief: bool
    recorded: dict[str, Any]
    kept: dict[str, Any]

    @property
    def record(self) -> dict[str, Any]:
        """What run.json is to say of it before its data is there."""
        options, engine = self.options, self.options.engine
        return {
            "recipe": self.recipe.name,
            "fields": dataclasses.asdict(self.recipe.fields),
            "seed": options.seed,
            "precision": engine.precision,
            "batch_norm": engine.batch_norm,
            "updates": engine.updates,
            "data": options.data,
            "parameters": options.devices.parameters,
            "init_from": options.init_from,
            "best_metric": self.recipe.best_metric,
        }

    def going_on(self, recorded: dict[str, Any]) -> Plan:
        """Returns the plan with the data and the fields of a run, but for those that are given.

        Raises:
            ValueError: the recipe refuses them.
        """
        options = self.options
        data = None if options.data else recorded.get("data")
        if data:
            options = dataclasses.replace(options, data=tuple(data))
        kept = kept_fields(self.asked, options, recorded.get("fields", {}))
        try:
            recipe = with_recorded(self.asked, kept)
        except ValueError as error:
            raise ValueError(f"{self.directory.path / 'run.json'}: {error}") from error
        own = (kept | {"data": ",".join(data)}) if data else kept
        return self._replace(recipe=recipe, options=options, recorded=recorded, kept=own)

    def common_settings(self) -> dict[str, Any]:
        """Returns what all processes must have equal, by name; data is compared by its content."""
        own, record = ("data", "parameters"), self.record
        fields = record.pop("fields")
        return {
            **{name: value for name, value in record.items() if name not in own},
            **{f"--set {name}": value for name, value in fields.items()},
            **dataclasses.asdict(self.options.engine),
            "steps": self.options.steps,
            "checkpoint-every": self.options.periods.checkpoint_every,
            "log-placement": self.options.log_placement,
            "versions": towers.checkpoints.package_versions(),
        }


def plan_run(recipe: Recipe, options: TrainOptions) -> Plan:
    """Returns the plan of a run; raises ValueError for options that exclude each other."""
    check_engine(options)
    directory = RunDirectory(options.run_dir or f"runs/{recipe.name}")
    place = towers.processes.find_place()
    if options.overwrite and place is not None:
        raise ValueError(
            "--overwrite does not work with several processes: any of them might remove the run. "
            f"Remove {directory.path} yourself, and leave --overwrite out."
        )
    is_chief = place is None or place.index == 0
    # A run that saved nothing gives way; but of several processes the others never save.
    gives_way = options.overwrite or (is_chief and directory.is_unsaved)
    recorded = {} if gives_way else directory.recorded(recipe.name)
    return Plan(recipe, recipe, options, directory, is_chief, {}, {}).going_on(recorded)


def kept_fields(recipe: Recipe, options: TrainOptions, fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields, of a run that goes on, of which the command gives no others.

    So it does not need the same `--set` again, and keeps its sizes where a release has others. A
    field that its recipe gave up is left for `check_same` to tell.
    """
    texts = getattr(options, "overrides", ())
    given = {one.partition("=")[0].strip().replace("-", "_") for one in texts}
    given |= {"epochs", *values_of(options)} | ({"fixed_shapes"} if options.engine.xla else set())
    now = json.loads(json.dumps(dataclasses.asdict(recipe.fields)))
    return {
        name: value
        for name, value in fields.items()
        if name in now.keys() - given and value != now[name]
    }
