#!/usr/bin/env python3
"""Builds the pretended CUDA for the TensorFlow of this Python and prints the folder that it is in.

It takes gcc (or $CC), binutils and the CUDA headers in TensorFlow's wheel, and a few seconds the
first time: the folder is in the user's cache, its name says what it was built of.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = ("log.c", "clock.c", "cuda.c", "libraries.c")
# TensorFlow's lists of the functions that it may look up.
LISTS = (
    "cuda", "cudart", "cublas", "cublasLt", "cudnn", "cufft", "cusolver", "cusparse", "nccl",
    "nvml",
)  # fmt: skip
LIBRARIES = (
    "libcuda.so.1", "libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcudnn.so.9",
    "libcufft.so.11", "libcusolver.so.11", "libcusparse.so.12", "libnccl.so.2",
    "libcurand.so.10", "libnvidia-ml.so.1",
)  # fmt: skip


def build() -> Path:
    """Returns the folder with the libraries, which are built if they are not there."""
    include = find_tensorflow() / "include"
    folder = cache() / f"pretended_gpu-{digest(include)}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        compile_into(Path(unfinished), include)
        try:
            Path(unfinished).rename(folder)
        except OSError:
            if not folder.exists():  # Else another process was faster.
                raise
        else:
            Path(unfinished).mkdir()  # To be removed in its place.
    return folder


def find_tensorflow() -> Path:
    """Returns the folder of the TensorFlow package, without the seconds that an import takes."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        raise SystemExit("This Python has no TensorFlow. Call another, or set $PYTHON.")
    package = Path(spec.origin).parent
    if not (package / "include/xla/tsl/cuda/cuda.inc").exists():
        raise SystemExit(f"{package} has no lists of CUDA functions: it is built without CUDA.")
    return package


def cache() -> Path:
    """Returns the folder for what may be built again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "towers-tests"


def digest(include: Path) -> str:
    """Returns a name for what is built of these sources and headers."""
    content = hashlib.sha256(str(include).encode())
    lists = [include / f"xla/tsl/cuda/{name}.inc" for name in LISTS]
    for path in [*sorted((HERE / "src").iterdir()), Path(__file__), *lists]:
        content.update(path.read_bytes())
    return content.hexdigest()[:12]


def compile_into(folder: Path, include: Path) -> None:
    """Writes one library, and a link to it for each that TensorFlow opens."""
    compiler = os.environ.get("CC", "gcc")
    gpus = include / "third_party/gpus"
    paths = [include, gpus / "cuda/include", gpus / "cudnn/include"]
    flags = ["-O1", "-w", "-fPIC", "-fvisibility=hidden", *(f"-I{path}" for path in paths)]
    objects = [folder / source.replace(".c", ".o") for source in SOURCES]
    for source, target in zip(SOURCES, objects, strict=True):
        subprocess.run([compiler, *flags, "-c", HERE / "src" / source, "-o", target], check=True)
    stubs = folder / "stubs.S"
    stubs.write_text(write_stubs(include, objects))
    library = folder / "libpretended.so"
    link = [compiler, "-shared", "-fPIC", "-o", library, *objects, stubs, "-lpthread"]
    subprocess.run(link, check=True)
    for name in LIBRARIES:
        (folder / name).symlink_to(library.name)


def write_stubs(include: Path, objects: list[Path]) -> str:
    """Returns assembler: each function in TensorFlow's lists that no object defines returns 0."""
    names: set[str] = set()
    for name in LISTS:
        content = (include / f"xla/tsl/cuda/{name}.inc").read_text()
        names.update(re.findall(r'"(\w+)"', content))
    nm = shutil.which("nm") or "nm"
    listing = subprocess.run([nm, *objects], check=True, capture_output=True, text=True).stdout
    defined = {line.split()[-1] for line in listing.splitlines() if line.strip()}
    stubs = [stub(*pair) for pair in enumerate(sorted(names - defined))]
    return "\n".join([".text", *stubs, '.section .note.GNU-stack,"",@progbits', ""])


def stub(index: int, name: str) -> str:
    """Returns a function that tells its name to the log and returns 0; NVML's: not supported."""
    return f"""
.globl {name}
.type {name},@function
{name}:
    movl ${index}, %edi
    leaq .Lname{index}(%rip), %rsi
    subq $8, %rsp
    call pretended_other
    movl ${3 if name.startswith("nvml") else 0}, %eax
    addq $8, %rsp
    ret
.section .rodata
.Lname{index}: .string "{name}"
.text"""


if __name__ == "__main__":
    print(build())
