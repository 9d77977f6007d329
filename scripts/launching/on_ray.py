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
from towers.ground.extras import import_extra
from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.launching.cluster import DEFAULT_PROCESSES, LaunchOptions
from towers.scripts.launching.processes import core_share
from towers.scripts.launching.watching import POLL_SECONDS, forward_signals
from towers.scripts.main import FAILED, read_command
from towers.scripts.shown import show
from towers.scripts.wrong_input import EXIT_CODE as WRONG_INPUT
from towers.scripts.wrong_input import WrongInputError, fail, wrong_input

OPEN = (
    "warning: anyone who can reach the Ray cluster {} can run programs as you, and anyone who can "
    "reach the port of a worker's TensorFlow, which listens on every address of its machine, can "
    "read and write your files; let only the machines of the cluster reach each other"
)
NODES_SECONDS = 600  # For which a lost machine may be replaced.
REFUSED_SECONDS = 10  # After which a worker ends that waits for one that refused its input.
WITH_FEWER, FEWER_SECONDS = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", {False: "60", True: "20"}
# Otherwise Ray leaves out lines that look alike, goes into a folder of its own, and logs what is
# printed.
SETTINGS = {
    "RAY_DEDUP_LOGS": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
}


def launch_on_ray(options: LaunchOptions, arguments: Sequence[str]) -> int:
    """Trains in workers of a Ray cluster, by the arguments of `towers`; returns the exit code.

    Raises:
        WrongInputError: Ray is not installed, or no cluster answers.
    """
    settings = {**SETTINGS, WITH_FEWER: FEWER_SECONDS[len(set(options.workers or ())) > 1]}
    os.environ.update({**settings, **os.environ})
    with wrong_input():
        import_extra("ray.train", "ray", "--ray trains on Ray")
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        show(OPEN.format(options.ray), flush=True, colour="yellow")
    import_tensorflow_quietly()
    try:
        ray.init(address=options.ray, logging_level="warning")
    except (ConnectionError, ValueError) as error:
        raise WrongInputError(f"--ray {options.ray}: no Ray cluster answers ({error}).") from error
    try:
        node = ray.get_runtime_context().get_node_id()
        here = NodeAffinitySchedulingStrategy(node, soft=False)
        notes = ray.remote(num_cpus=0, scheduling_strategy=here)(Notes).remote()
        failure, forwarded = fit(make_trainer(options, arguments, notes), notes)
        if forwarded:
            return 128 + forwarded[0]
        with contextlib.suppress(ray.exceptions.RayError):  # The actor may be lost too.
            refused = ray.get(notes.tell.remote())[1]
            if refused:
                return fail(refused, WRONG_INPUT)
        if failure is None:
            return 0
        *_, last = filter(str.strip, ["Ray gives no reason", *str(failure).splitlines()])
        return fail(f"{last}. The same command continues from the last checkpoint.", FAILED)
    finally:
        ray.shutdown()


def fit(trainer: Any, notes: Any) -> tuple[Exception | None, Sequence[int]]:
    """Trains; returns why that failed, or None, and the numbers of the signals that came."""
    outcomes: list[Exception | None] = []

    def train() -> None:
        try:
            trainer.fit()
            outcomes.append(None)
        except Exception as error:
            outcomes.append(error)

    def send(number: int) -> None:
        if number == signal.SIGKILL:
            outcomes.append(None)  # Ray kills the workers with their driver.
        else:
            notes.tell.remote(stop=number)

    # In another thread, since in this one Ray takes Ctrl-C for itself, and ends without saving.
    threading.Thread(target=train, daemon=True).start()
    with forward_signals(send) as forwarded:
        while not outcomes:
            time.sleep(POLL_SECONDS)
    return outcomes[0], forwarded


def make_trainer(options: LaunchOptions, arguments: Sequence[str], notes: Any) -> Any:
    """Returns Ray's trainer whose workers train a recipe."""
    from ray import train
    from ray.train.tensorflow import TensorflowTrainer

    _, own = read_command(arguments)
    run_dir = Path(own.run_dir or f"runs/{own.recipe}").absolute()
    workers = options.workers or (DEFAULT_PROCESSES,)
    least, most = min(workers), max(workers)
    storage = options.storage
    if storage and "://" not in storage:  # Ray takes absolute paths alone.
        storage = os.path.abspath(storage)
    kept = f"kept in {storage}" if storage else "on all machines"
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
                f"{socket.gethostname()} lacks towers ({error}); install the same version there."
            ) from error
        run_worker(**config)

    return TensorflowTrainer(
        loop,
        train_loop_config={
            "arguments": list(arguments),
            "folder": os.getcwd(),
            "run_dir": str(run_dir) if storage else None,
            "notes": notes,
        },
        scaling_config=train.ScalingConfig(
            num_workers=least if least == most else (least, most),
            use_gpu=gpus > 0,
            resources_per_worker={"GPU": gpus} if gpus else None,
        ),
        run_config=train.RunConfig(
            name=run_dir.name,
            storage_path=storage or f"{run_dir.parent}/.ray",
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

    def tell(self, stop: int = 0, refused: str = "") -> tuple[int, str]:
        """Returns what was told so far, and notes more.

        Args:
            stop: the number of the signal as which it counts that the workers save and end.
            refused: what is wrong with the input, so that no restart tries it again.
        """
        self._stop, self._refused = stop or self._stop, self._refused or refused
        return self._stop, self._refused


def run_worker(arguments: Sequence[str], folder: str, run_dir: str | None, notes: Any) -> None:
    """Trains in the driver's folder, as one worker of Ray's; RuntimeError if it is not there.

    Where Ray keeps the checkpoints, it is told `run_dir`, the run's directory.
    """
    import ray
    from ray import train

    if any(ray.get(notes.tell.remote())):
        return
    context = train.get_context()
    who = f"worker {context.get_world_rank()}"
    place = f"{who} on {ray.util.get_node_ip_address()}"
    if not os.path.isdir(folder):
        raise RuntimeError(
            f"{place} has no folder {folder}; start from a folder that all machines have, with "
            "the code and the data in it."
        )
    os.chdir(folder)
    import_tensorflow_quietly()
    for name in ("tensorflow", "ray.train"):  # Else each collective and each report has a line.
        logging.getLogger(name).setLevel(logging.WARNING)
    with contextlib.redirect_stdout(Prefixed(sys.stdout, f"{who}: ")), asked_by(notes):
        try:
            command, options = read_command(arguments)
            share = core_share(context.get_local_world_size(), options)
            os.environ.update({**share, **os.environ})
            if run_dir is None:
                command.run(options)
            else:
                from towers.ray import Run

                kept = Run(run_dir)
                command.run(options, lambda: kept.report({}))
                kept.report({}, last=True)
        except Exception as error:
            is_full = os.strerror(errno.ENOSPC) in str(error)  # Room may be made.
            is_wrong = isinstance(error, WrongInputError) and not is_full
            refused = f"{place}: {error}" if is_wrong else ""
            if not ray.get(notes.tell.remote(refused=refused))[1]:
                raise


class Prefixed:
    """A stream that begins each line with the worker's number."""

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
    """The scope in which this worker's training ends once the driver asks for it.

    Where another worker refused its input, this one may wait in a collective that nothing ends.
    """
    import ray

    ended = threading.Event()

    def look() -> None:
        refused = ""
        while not ended.wait(REFUSED_SECONDS if refused else 1.0):
            if refused:
                os._exit(WRONG_INPUT)
            number, refused = ray.get(notes.tell.remote())
            if number:
                towers.actions.request_stop(number)

    threading.Thread(target=look, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
