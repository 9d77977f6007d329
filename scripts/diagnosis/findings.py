"""A finding about a machine, and those that need no device: software, memory, disk, driver."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import tensorflow as tf

import towers
from towers.ground.extras import installs

OK, WARNING, WRONG = "ok", "warning", "wrong"
LITTLE_MEMORY, LITTLE_DISK = 4e9, 5e9  # Bytes: a small chatbot; a data set with its checkpoints.
DRIVER = Path("/proc/driver/nvidia/version")
MEMORY = Path("/proc/meminfo")
PROCESSOR = Path("/proc/cpuinfo")
BFLOAT16 = ("avx512_bf16", "amx_bf16")  # Linux's names for a processor that multiplies in it.
SECONDS = 20  # The longest time that nvidia-smi may take.
KERNELS = "TF_ENABLE_ONEDNN_OPTS"  # `import towers` asks for oneDNN's where it is not set.


class Finding(NamedTuple):
    """What was found.

    Attributes:
        state: ok, warning or wrong.
        what: the part of the machine.
        found: what is there.
        remedy: what to do about it, if it is not ok.
    """

    state: str
    what: str
    found: str
    remedy: str = ""


def find_software() -> Iterator[Finding]:
    """Yields the versions, and whether TensorFlow can use GPUs."""
    yield Finding(OK, "Python", platform.python_version())
    built = tf.sysconfig.get_build_info()
    yield Finding(OK, "TensorFlow", f"{tf.__version__}, Keras {keras.__version__}")
    if not built.get("is_cuda_build"):
        yield Finding(OK, "CUDA", "this TensorFlow is built for CPUs only")
    else:
        versions = f"CUDA {built.get('cuda_version')}, cuDNN {built.get('cudnn_version')}"
        yield Finding(OK, "CUDA", f"TensorFlow is built for {versions}")
    yield from find_driver(DRIVER, len(tf.config.list_physical_devices("GPU")))


def find_processor(processor: Path = PROCESSOR) -> Iterator[Finding]:
    """Yields the cores, whether they multiply in bfloat16, and TensorFlow's kernels for them."""
    cores = towers.devices.num_cores()
    text = processor.read_text(encoding="utf-8") if processor.exists() else ""
    fast = ", with bfloat16 multiplication" if set(BFLOAT16) & set(text.split()) else ""
    yield Finding(OK, "processor", f"{cores} core{'s' * (cores != 1)}{fast}")
    if os.environ.get(KERNELS) == "0":
        yield Finding(
            WARNING, "kernels", f"oneDNN's kernels are off, since {KERNELS}=0",
            "unset the variable: they are usually faster",
        )  # fmt: skip


def find_driver(driver: Path, num_gpus: int) -> Iterator[Finding]:
    """Yields the driver of NVIDIA GPUs, and whether TensorFlow finds the GPUs behind it."""
    if not driver.exists():
        yield Finding(OK, "driver", "no NVIDIA driver: towers run on virtual CPUs")
        return
    line = driver.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    yield Finding(OK, "driver", line.removeprefix("NVRM version: "))
    if not num_gpus:
        yield Finding(
            WRONG, "GPUs", "there is a driver, but TensorFlow finds no GPU",
            f"install CUDA's libraries in your clone with: {installs('gpu')}; and check that "
            "CUDA_VISIBLE_DEVICES does not hide the GPUs",
        )  # fmt: skip


def find_gpus() -> Iterator[Finding]:
    """Yields each GPU, and which of them copy to each other directly."""
    gpus = find_devices()["GPU"]
    for gpu in gpus:
        capability = gpu.get("compute_capability", "?")
        found = f"{gpu['name']}, compute capability {capability}"
        yield Finding(OK, f"GPU {gpu['number']}", found)
    if len(gpus) > 1:
        yield peer_access(peer_table())


def find_devices() -> dict[str, list[dict[str, Any]]]:
    """Returns the physical devices by kind, without touching the memory of a GPU.

    A device has its product name, or TensorFlow's name if the product is unknown. A GPU also has
    its compute capability and its PCI id, by which `nvidia-smi` knows it, if the driver tells them.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in ("CPU", "GPU"):
        found[kind] = []
        for number, device in enumerate(tf.config.list_physical_devices(kind)):
            details = tf.config.experimental.get_device_details(device)
            described = {"number": number, "name": details.get("device_name", device.name)}
            if "compute_capability" in details:
                described["compute_capability"] = ".".join(map(str, details["compute_capability"]))
            if kind == "GPU":
                with contextlib.suppress(OSError):
                    described["pci"] = towers.devices.pci_id(number)
            found[kind].append(described)
    return found


def peer_table() -> str:
    """Returns what nvidia-smi says of the access from GPU to GPU; nothing where it is not there."""
    command = ["nvidia-smi", "topo", "-p2p", "r"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def peer_access(text: str) -> Finding:
    """Returns the finding about a table of nvidia-smi: rows GPU0, GPU1, ... with OK or a reason."""
    rows = [line.split() for line in text.splitlines() if line.strip().startswith("GPU")]
    cells = [cell for row in rows for cell in row[1:] if not cell.startswith("GPU")]
    links = [cell for cell in cells if cell != "X"]
    if not links:
        return Finding(WARNING, "peer access", "unknown: nvidia-smi does not say", "see its help")
    wrong = sorted({cell for cell in links if cell != "OK"})
    if not wrong:
        return Finding(OK, "peer access", "every GPU can read every other one directly")
    return Finding(
        WARNING, "peer access", f"not between all GPUs ({', '.join(wrong)})",
        "copies go through the host; prefer --parameters cpu, or put the GPUs on one switch",
    )  # fmt: skip


def find_room(folder: Path, memory: Path = MEMORY) -> Iterator[Finding]:
    """Yields the free memory of the machine and the free space of a folder's disk."""
    free = free_memory(memory)
    if free is not None:
        yield enough("memory", free, LITTLE_MEMORY, "close other programs, or use a smaller batch")
    existing = next(one for one in (folder, *folder.resolve().parents) if one.exists())
    free = shutil.disk_usage(existing).free
    remedy = "remove runs that you do not need, or choose another disk with --run-dir"
    yield enough(f"disk of {folder}", free, LITTLE_DISK, remedy)
    if not os.access(existing, os.W_OK):
        yield Finding(WRONG, "run directory", f"{existing} cannot be written",
                      "choose another with --run-dir")  # fmt: skip


def free_memory(memory: Path) -> int | None:
    """Returns the bytes that Linux could give to a program, None elsewhere."""
    if not memory.exists():
        return None
    lines = memory.read_text(encoding="utf-8").splitlines()
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(found[0]) if found else None


def enough(what: str, free: int, little: float, remedy: str) -> Finding:
    """Returns the finding about a number of free bytes."""
    found = f"{free / 1e9:.1f} GB free"
    return Finding(OK, what, found) if free >= little else Finding(WARNING, what, found, remedy)
