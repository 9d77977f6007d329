from .saving.checkpoint_files import Checkpoint as Checkpoint
from .saving.checkpoint_files import DamagedCheckpointError as DamagedCheckpointError
from .saving.checkpoint_files import Groups as Groups
from .saving.checkpoint_folder import CheckpointFolder as CheckpointFolder
from .saving.checkpoints import restore as restore
from .saving.checkpoints import restore_matching as restore_matching
from .saving.lock import lock_holder as lock_holder
from .saving.lock import locked as locked
