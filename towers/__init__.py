"""The engine: devices, towers, gradients, steps, checkpoints."""

from towers.async_trainer import AsyncTrainer
from towers.asynchronous import AsyncStep, build_async_step
from towers.builder import TrainStep, build_train_step
from towers.determinism import enable_determinism
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
    "AsyncStep",
    "AsyncTrainer",
    "Devices",
    "Position",
    "Shard",
    "StepReport",
    "StopTraining",
    "TrainStep",
    "Trainer",
    "average_gradients",
    "batches_from",
    "build_async_step",
    "build_evaluation_step",
    "build_train_step",
    "enable_determinism",
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
