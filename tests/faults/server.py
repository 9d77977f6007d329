"""Runs commands in forked processes that end at chosen operations on files.

It reads one JSON object a line: `arguments` of `towers`, the `folder` that is watched, the number
`at` of the operation (0 for none), whether to die `within` it, a `log` of the operations, a file
for the `output`, `setup`, Python to run before, and the `seconds` after which it is killed, or
null. It answers with the exit code.
"""

import ctypes
import json
import math
import os
import signal
import sys
import time
import warnings


def main():
    import keras  # noqa: F401 - once for all commands.
    import tensorflow  # noqa: F401

    import towers.scripts.commands.export
    import towers.scripts.commands.train
    import towers.scripts.exporting.writers
    import towers.scripts.training.run  # noqa: F401

    warnings.simplefilter("ignore", DeprecationWarning)  # Of forks with threads.
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(run(job))
        print(wait_for(child, job["seconds"]), flush=True)


def wait_for(child, seconds):
    """Returns the exit code of a child, which is killed after so many seconds."""
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, 0 if seconds is None else os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(job):
    output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.chdir(job["folder"])
    try:
        from towers.scripts.main import main

        exec(job["setup"], {})
        if job["log"]:
            shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
            arguments = [job["folder"].encode(), job["at"], int(job["within"]), job["log"].encode()]
            shim.fault_arm(*arguments)
        code = main(job["arguments"])
    except SystemExit as leaving:
        code = leaving.code
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    main()
