from .optimizers import build_optimizer as build_optimizer
from .schedules import build_schedule as build_schedule
from .schedules import scale_learning_rate as scale_learning_rate
