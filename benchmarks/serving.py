"""How long clients of `towers serve` wait: 1, 10 and 100 of them, which never pause.

    python -m benchmarks.serving runs/chatbot --seconds 60

It starts the server, from the folder that `--server` names, and prints one line of JSON. Ratios are
to the median of one client of the same server; each number of clients asks for as long.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from towers.scripts.options.flags import Parser, reader
from towers.scripts.options.setting import Amount, setting_of

CLIENTS = (1, 10, 100)
WARM = 3.0  # Seconds of questions before anything is measured.
PATIENCE = 300.0  # Seconds for an answer.


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures a server, prints a line and returns 0."""
    parser = Parser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    amount = reader(setting_of(Amount))
    parser.add_argument("--seconds", type=amount, default=60.0, help="for each number of clients")
    parser.add_argument("--question", default="First take four and add five.")
    parser.add_argument("--server", type=Path, default=Path.cwd(), help="a clone of the project")
    given = parser.parse_args(arguments)
    with (
        parser.refusing(RuntimeError, OSError),
        serving(given.run_dir.resolve(), given.server) as port,
    ):
        message = {"role": "user", "content": given.question}
        body = json.dumps({"model": given.run_dir.resolve().name, "messages": [message]})
        measure(port, body, max(CLIENTS), WARM)
        found = {clients: measure(port, body, clients, given.seconds) for clients in CLIENTS}
    alone = found[min(CLIENTS)]["p50_ms"]
    for one in found.values():
        one.update(p50_ratio=one["p50_ms"] / alone, p99_ratio=one["p99_ms"] / alone)
    rounded = {n: {k: round(v, 2) for k, v in one.items()} for n, one in found.items()}
    print(json.dumps({"seconds": given.seconds, "clients": rounded}))
    return 0


@contextlib.contextmanager
def serving(run_dir: Path, folder: Path) -> Iterator[int]:
    """The scope of a server of a run; yields its port."""
    command = [sys.executable, "-m", "towers.scripts.main", "serve", str(run_dir), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            for line in process.stdout or ():
                if found := re.search(r"served at http://127\.0\.0\.1:(\d+)", line):
                    yield int(found.group(1))
                    break
            else:
                raise RuntimeError(f"the server of {run_dir} did not start; it says above why")
        finally:
            process.terminate()


def measure(port: int, body: str, clients: int, seconds: float) -> dict[str, Any]:
    """Returns the latencies in milliseconds and the rate of clients that never pause.

    Raises:
        RuntimeError: no request was answered.
    """
    times: list[float] = []
    failed: list[float] = []
    began = time.perf_counter()

    def ask() -> None:
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        ) as connection:
            while (before := time.perf_counter()) < began + seconds:
                headers = {"Content-Type": "application/json"}
                connection.request("POST", "/v1/chat/completions", body, headers)
                response = connection.getresponse()
                response.read()
                (times if response.status == 200 else failed).append(time.perf_counter() - before)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    if not times:
        raise RuntimeError(f"none of {len(failed)} requests was answered: {body}")
    p50, p99 = np.percentile(times, (50, 99))
    return {
        "p50_ms": 1000 * p50,
        "p99_ms": 1000 * p99,
        "per_second": len(times) / took,
        "failed": len(failed),
    }


if __name__ == "__main__":
    sys.exit(main())
