"""What is to be measured on a machine with GPUs, in slices of at most nine minutes.

    bash benchmarks/gpu_day.sh FOLDER              every slice, then the page
    bash benchmarks/gpu_day.sh FOLDER laws page    these only

Each slice leaves FOLDER/SLICE.json, whatever happens to it, and can be repeated by itself. The
page, FOLDER/page.md, holds what is there and names what is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

SECONDS = 540.0
LINES = 12  # Of a command's output are kept.
PYTHON = [sys.executable, "-m"]
NVIDIA_SMI = ["nvidia-smi", "--format=csv,noheader,nounits"]


def slices(num_gpus: int, folder: Path, *, small: bool) -> dict[str, list[list[str]]]:
    """Returns the commands of each slice.

    Args:
        num_gpus: of this machine; 0 for a dry run on two virtual CPUs.
        folder: where runs and results are kept.
        small: whether everything is as small as it can be.
    """
    numbers = [number for number in (1, 2, 4, 8) if number <= max(num_gpus, 2)]
    if num_gpus == 1:
        numbers = [1]
    most, steps = str(numbers[-1]), "2" if small else "100"
    timing = ["--steps", "3" if small else "20", "--repetitions", "1" if small else "7"]
    timing += ["--towers", ",".join(map(str, numbers))]

    def compared(task: str, *options: str) -> list[str]:
        ways = "plain" if num_gpus == 1 or small else "plain,mirrored"
        results = ["--results", str(folder / f"{task}.jsonl"), "--against", ways]
        return [*PYTHON, "benchmarks", "compare", task, *timing, *results, *options]

    def trained(name: str, recipe: str, *options: str) -> list[str]:
        run = ["--run-dir", str(folder / "runs" / name), "--overwrite", "--steps", steps]
        return [*PYTHON, "towers", "train", recipe, "--towers", most, *run, *options]

    tiny = ["--batch-size", "8"] if small else []
    picture_size = tiny or ["--batch-size", "256"]
    on_one = [[*PYTHON, "towers", "doctor", "--towers", "2", "--virtual"]] if num_gpus == 1 else []
    chosen = {
        "machine": [[*PYTHON, "towers", "devices"], [*PYTHON, "towers", "doctor", "--json"]],
        "laws": [[*PYTHON, "tests.gpu.real_laws", most], *on_one],
        "recipes": [
            trained("shapes", "shapes"),
            trained("chatbot", "chatbot", "--language", "zh"),
            trained("stories", "stories"),
        ],
        "chatbot": [compared("made_chatbot", *tiny)],
        "resnet50": [compared("made_resnet50", *picture_size)],
        "precision": [
            trained("tf32", "chatbot"),
            trained("float32", "chatbot", "--no-tf32"),
            trained("bfloat16", "chatbot", "--precision", "bfloat16"),
            trained("xla", "shapes", "--xla"),
        ],
        "others": [compared(f"made_{task}", *tiny) for task in ("language_model", "cnn", "mlp")],
    }
    return {name: commands[: 1 if small else None] for name, commands in chosen.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the slices, and returns how many of them failed."""
    parser = argparse.ArgumentParser(prog="benchmarks/gpu_day.sh", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("slices", nargs="*", help="their names (default: all, and page)")
    parser.add_argument("--small", action="store_true", help="a dry run: as little as can be")
    options = parser.parse_intermixed_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    gpus = asked("--query-gpu=name")
    chosen = slices(len(gpus), options.folder, small=options.small)
    unknown = set(options.slices) - {*chosen, "page"}
    if unknown:
        parser.error(f"there is no slice {', '.join(unknown)}: {', '.join(chosen)}, page")
    failed = 0
    for name in options.slices or [*chosen, "page"]:
        if name != "page":
            failed += not run_slice(name, chosen[name], gpus, options.folder)
    (options.folder / "page.md").write_text(page(chosen, options.folder), encoding="utf-8")
    return failed


def run_slice(name: str, commands: list[list[str]], gpus: list[str], folder: Path) -> bool:
    """Runs the commands of a slice, writes its JSON, and returns whether all succeeded."""
    ends, rows = time.monotonic() + SECONDS, []
    for command in commands:
        started = time.monotonic()
        print(f"{name}: {' '.join(command[2:])}", flush=True)
        with watched() as samples:
            try:
                left = max(1.0, ends - started)
                done = subprocess.run(
                    command,
                    timeout=left,
                    text=True,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                )
                code, text = done.returncode, done.stdout
            except subprocess.TimeoutExpired as error:
                code, text = None, (error.stdout or b"").decode(errors="replace")
        busy = [used for used, _ in samples]
        rows.append(
            {
                "command": command[2:],
                "exit_code": code,
                "seconds": round(time.monotonic() - started, 1),
                "gpu_idle_percent": 100 - statistics.fmean(busy) if busy else None,
                "peak_megabytes": max(memory for _, memory in samples) if samples else None,
                "output": text.splitlines()[-LINES:],
            }
        )
    result = {"slice": name, "gpus": gpus, "rows": rows}
    (folder / f"{name}.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    return all(row["exit_code"] == 0 for row in rows)


@contextlib.contextmanager
def watched() -> Iterator[list[tuple[float, float]]]:
    """The scope in which the GPUs are asked each second; yields (busy percent, MB in use), each."""
    samples: list[tuple[float, float]] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(1):
            for line in asked("--query-gpu=utilization.gpu,memory.used"):
                with contextlib.suppress(ValueError):  # `[N/A]` on some machines.
                    busy, memory = map(float, line.split(","))
                    samples.append((busy, memory))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def asked(query: str) -> list[str]:
    """Returns a line for each GPU from nvidia-smi; none where there is no such program."""
    try:
        found = subprocess.run([*NVIDIA_SMI, query], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return []
    return found.stdout.splitlines() if found.returncode == 0 else []


def page(chosen: dict[str, list[list[str]]], folder: Path) -> str:
    """Returns the page about what is in the folder."""
    lines, missing = ["# A day on GPUs", ""], []
    for name, commands in chosen.items():
        file = folder / f"{name}.json"
        if not file.exists():
            missing.append(f"{name}: not run")
            continue
        found = json.loads(file.read_text(encoding="utf-8"))
        lines += [f"## {name}", "", f"GPUs: {', '.join(found['gpus']) or 'none'}", ""]
        lines += ["| command | exit code | s | GPUs idle, % | peak MB |", "|---|---|---|---|---|"]
        for row in found["rows"]:
            values = [row["exit_code"], row["seconds"], row["gpu_idle_percent"]]
            cells = [f"`{' '.join(row['command'])}`", *values, row["peak_megabytes"]]
            lines.append(f"| {' | '.join('-' if one is None else str(one) for one in cells)} |")
            if row["exit_code"] != 0:
                what = "did not end in time" if row["exit_code"] is None else "failed"
                missing.append(f"{name}: `{' '.join(row['command'])}` {what}")
        if len(found["rows"]) < len(commands):
            missing.append(f"{name}: {len(commands) - len(found['rows'])} commands were left out")
        if not found["gpus"]:
            missing.append(f"{name}: it ran without a GPU")
        lines += ["", *(f"    {line}" for row in found["rows"] for line in row["output"]), ""]
    lines += ["## Missing", "", *(f"- {one}" for one in missing or ["nothing"])]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
