"""`towers launch --ray`: workers of Ray Train train a recipe, and are started again if one is lost.

The driver and the workers tell each other by an actor, `Notes`, what Ray Train has no word for.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import towers
from towers.ground.cores import num_cores
from towers.ground.extras import import_extra
from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.launching.cluster import DEFAULT_PROCESSES
from towers.scripts.launching.options import LaunchOptions
from towers.scripts.launching.watching import POLL_SECONDS, forward_signals
from towers.scripts.main import FAILED, read_command
from towers.scripts.shown import show
from towers.scripts.wrong_input import EXIT_CODE as WRONG_INPUT
from towers.scripts.wrong_input import WrongInputError, fail, wrong_input

OPEN = (
    "warning: whoever reaches the Ray cluster {} runs programs as you, and whoever reaches the "
    "port of a worker's TensorFlow, open on every address of its machine, reads and writes files: "
    "let the machines of the cluster alone reach each other"
)
NODES_SECONDS = 600  # For which a lost machine may be replaced.
WITH_FEWER, FEWER_SECONDS = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", {False: "60", True: "20"}
# Otherwise Ray leaves out lines that look alike, goes into a folder of its own, and logs what is
# printed.
SETTINGS = {
    "RAY_DEDUP_LOGS": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
}


def launch_on_ray(options: LaunchOptions, arguments: Sequence[str]) -> int:
    """Trains in workers of a Ray cluster; returns the exit code.

    Args:
        options: of the launch.
        arguments: of `towers`: `train` with its own.

    Raises:
        WrongInputError: Ray is not installed, or no cluster answers.
    """
    settings = {**SETTINGS, WITH_FEWER: FEWER_SECONDS[len(set(options.workers or ())) > 1]}
    os.environ.update({**settings, **os.environ})
    with wrong_input():
        ray = import_extra("ray", "ray", "--ray trains on Ray")
    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        show(OPEN.format(options.ray), flush=True, colour="yellow")
    import_tensorflow_quietly()
    try:
        ray.init(address=options.ray, logging_level="warning")
    except (ConnectionError, ValueError) as error:
        raise WrongInputError(f"--ray {options.ray}: no Ray cluster answers ({error}).") from error
    try:
        strategies = import_extra("ray.util.scheduling_strategies", "ray", "--ray trains on Ray")
        here = strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        notes = ray.remote(num_cpus=0, scheduling_strategy=here)(Notes).remote()
        group = Group(make_trainer(options, arguments, notes), notes)
        with forward_signals([group]) as forwarded:
            group.wait()
        if forwarded:
            return 128 + forwarded[0]
        if group.error is None:
            return 0
        refused = ray.get(notes.read.remote())[1]
        if refused:
            return fail(refused, WRONG_INPUT)
        *_, last = filter(str.strip, str(group.error).splitlines() or ["Ray gives no reason"])
        return fail(f"{last}. The same command continues from the last checkpoint.", FAILED)
    finally:
        ray.shutdown()


def make_trainer(options: LaunchOptions, arguments: Sequence[str], notes: Any) -> Any:
    """Returns Ray's trainer whose workers train a recipe."""
    train = import_extra("ray.train", "ray", "--ray trains on Ray")
    tensorflow = import_extra("ray.train.tensorflow", "ray", "--ray trains on Ray")
    _, own = read_command(arguments)
    run_dir = Path(own.run_dir or f"runs/{own.recipe}").absolute()
    workers = options.workers or (DEFAULT_PROCESSES,)
    least, most = min(workers), max(workers)
    kept = f"kept in {options.storage}" if options.storage else "on all machines"
    seconds, count = int(os.environ[WITH_FEWER]), f"{least}"
    if most > least:
        count = f"{least} to {most} (those that Ray can start within {seconds} s)"
    show(f"{count} workers on Ray, run in {run_dir}, {kept}", flush=True)
    gpus = options.gpus_per_worker

    def loop(config: dict[str, Any]) -> None:
        try:
            from towers.scripts.launching.on_ray import run_worker
        except ImportError as error:
            raise RuntimeError(
                f"{socket.gethostname()} lacks towers ({error}): install the same version there."
            ) from error
        run_worker(**config)

    return tensorflow.TensorflowTrainer(
        loop,
        train_loop_config={
            "arguments": list(arguments),
            "folder": os.getcwd(),
            "run_dir": str(run_dir) if options.storage else None,
            "notes": notes,
        },
        scaling_config=train.ScalingConfig(
            num_workers=least if least == most else (least, most),
            use_gpu=gpus > 0,
            resources_per_worker={"GPU": gpus} if gpus else None,
        ),
        run_config=train.RunConfig(
            name=run_dir.name,
            storage_path=options.storage or f"{run_dir.parent}/.ray",
            failure_config=train.FailureConfig(
                max_failures=options.max_restarts,
                controller_failure_limit=NODES_SECONDS // seconds,
            ),
            checkpoint_config=train.CheckpointConfig(num_to_keep=2),
        ),
    )


class Notes:
    """An actor: what the driver and the workers tell each other."""

    def __init__(self) -> None:
        self._stop, self._refused = 0, ""

    def stop(self, number: int) -> None:
        """Asks the workers to save and end.

        Args:
            number: of the signal as which it counts.
        """
        self._stop = number

    def refuse(self, message: str) -> None:
        """Notes what is wrong with the input, so that no restart tries it again."""
        self._refused = message

    def read(self) -> tuple[int, str]:
        """Returns the number that `stop` got, or 0, and what `refuse` got, or an empty text."""
        return self._stop, self._refused


class Group:
    """The workers of Ray's trainer, as `forward_signals` knows a worker.

    Args:
        trainer: Ray's; it starts at once.
        notes: the actor.

    Attributes:
        code: the exit code, or None while they train.
        error: why the training failed, or None.
    """

    def __init__(self, trainer: Any, notes: Any):
        self.code: int | None = None
        self.error: Exception | None = None
        self.process, self.index = self, 0
        self._trainer, self._notes = trainer, notes
        # In another thread, since in this one Ray takes Ctrl-C for itself, and ends without saving.
        threading.Thread(target=self._fit, daemon=True).start()

    def _fit(self) -> None:
        try:
            self._trainer.fit()
            self.code = 0
        except Exception as error:
            self.error, self.code = error, FAILED

    def send_signal(self, number: int) -> None:
        """Asks the workers to save and end; SIGKILL ends the wait for them."""
        if number == signal.SIGKILL:
            self.kill()
        else:
            self._notes.stop.remote(number)

    def kill(self) -> None:
        """Ends the wait: Ray kills the workers with their driver."""
        self.code = -signal.SIGKILL

    terminate = kill

    def wait(self, timeout: float = 0) -> None:
        """Returns once the workers have ended; then a timeout would be of no use."""
        while self.code is None:
            time.sleep(POLL_SECONDS)


def run_worker(arguments: Sequence[str], folder: str, run_dir: str | None, notes: Any) -> None:
    """Trains, as one worker of Ray's.

    Args:
        arguments: of `towers`.
        folder: to train in, as the driver does.
        run_dir: the run's directory if Ray keeps its checkpoints, None if all machines share it.
        notes: the actor.

    Raises:
        RuntimeError: the folder is not there.
        WrongInputError: the input is wrong, now or before a restart.
    """
    import ray
    from ray import train

    stop, refused = ray.get(notes.read.remote())
    if refused:
        raise WrongInputError(refused)
    if stop:
        return
    context = train.get_context()
    who = f"worker {context.get_world_rank()}"
    place = f"{who} on {ray.util.get_node_ip_address()}"
    if not os.path.isdir(folder):
        raise RuntimeError(
            f"{place} has no folder {folder}: start from one that all machines have, with the code "
            "and the data in it."
        )
    os.chdir(folder)
    threads = str(max(1, num_cores() // context.get_local_world_size()))
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ.setdefault(name, threads)
    import_tensorflow_quietly()
    for name in ("tensorflow", "ray.train"):  # Else each collective and each report has a line.
        logging.getLogger(name).setLevel(logging.WARNING)
    with contextlib.redirect_stdout(Prefixed(sys.stdout, f"{who}: ")), asked_by(notes):
        try:
            command, options = read_command(arguments)
            if run_dir is None:
                command.run(options)
            else:
                from towers.ray import Run

                kept = Run(run_dir)
                command.run(options, lambda: kept.report({}))
        except WrongInputError as error:
            cause = error.__cause__ and (error.__cause__.__cause__ or error.__cause__)
            if getattr(cause, "errno", None) != errno.ENOSPC:  # Room may be made.
                ray.get(notes.refuse.remote(f"{place}: {error}"))
            raise


class Prefixed:
    """A stream that begins each line with the worker's number.

    Args:
        stream: where the lines go.
        prefix: their beginning.
    """

    def __init__(self, stream: TextIO, prefix: str):
        self._stream, self._prefix, self._line = stream, prefix, ""

    def write(self, text: str) -> int:
        """Writes the lines that are whole."""
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._stream.write(f"{self._prefix}{line}\n")
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def asked_by(notes: Any) -> Iterator[None]:
    """The scope in which this worker's training ends once the driver asks for it."""
    import ray

    ended = threading.Event()

    def look() -> None:
        while not ended.wait(1.0):
            number, _ = ray.get(notes.read.remote())
            if number:
                towers.actions.request_stop(number)

    threading.Thread(target=look, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
