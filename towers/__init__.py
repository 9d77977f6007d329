"""The engine: devices, towers, gradients, steps, checkpoints."""

from towers.builder import build_train_step
from towers.devices import Devices, select_devices
from towers.evaluation import build_evaluation_step
from towers.exchange import working_placement
from towers.gradients import average_gradients
from towers.inputs import Shard, batches_from, shard_specs, split, split_batch
from towers.metrics import evaluate
from towers.parallel import parallel
from towers.parameters import parameter_device, shared_variables
from towers.trainer import Position, StepReport, StopTraining, Trainer

__all__ = [
    "Devices",
    "Position",
    "Shard",
    "StepReport",
    "StopTraining",
    "Trainer",
    "average_gradients",
    "batches_from",
    "build_evaluation_step",
    "build_train_step",
    "evaluate",
    "parallel",
    "parameter_device",
    "select_devices",
    "shard_specs",
    "shared_variables",
    "split",
    "split_batch",
    "working_placement",
]
