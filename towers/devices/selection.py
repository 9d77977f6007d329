"""The devices of the towers: GPUs by number, virtual GPUs, or virtual CPUs without a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from numbers import Integral

import tensorflow as tf

from towers.devices.cpu import keep_memory, share_cores
from towers.devices.determinism import is_deterministic
from towers.devices.driver import total_memory
from towers.devices.kernels import warn_of_slow_kernels
from towers.ground.arguments import check_at_least

VIRTUAL_GPU_MEGABYTES = 2048
BYTES_PER_MEGABYTE = 1024**2


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a run.

    Attributes:
        towers: a TensorFlow device name for each tower, in tower order; the first of several.
        description: one line for a person that says on which devices the towers run.
        groups: each tower's devices, one or several.
    """

    towers: tuple[str, ...]
    description: str
    groups: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.groups:
            object.__setattr__(self, "groups", tuple((device,) for device in self.towers))


def select_devices(
    num_towers: int | None = None,
    *,
    gpus: Sequence[int] | None = None,
    gpus_per_tower: int = 1,
    virtual: bool = False,
    gpu_memory: float | None = None,
    cpu_towers: int = 1,
    tf32: bool | None = None,
) -> Devices:
    """Returns the devices to build towers on; call it before anything else touches TensorFlow.

    TensorFlow sees only the chosen GPUs, and their memory grows as needed.

    Args:
        num_towers: the number of towers; None: one per GPU, or `cpu_towers` without a GPU.
        gpus: the numbers of the GPUs to use, in tower order; None: the first ones.
        gpus_per_tower: how many devices each tower has, for models that one is too small for;
            without a GPU, so many virtual CPUs.
        virtual: whether to split a single GPU into virtual ones.
        gpu_memory: the memory limit of each GPU: above 1 in gigabytes, otherwise a fraction of the
            GPU's memory.
        cpu_towers: the number of towers without a GPU, if `num_towers` is None.
        tf32: whether GPUs may round the factors of float32 products to TF32, which has 10 bits of
            mantissa instead of 23; None for TensorFlow's default: where a GPU can, it does.

    Raises:
        ValueError: a GPU does not exist, or the arguments contradict each other.
        RuntimeError: TensorFlow has already started, so devices cannot be configured any more.
    """
    check_request(num_towers, gpus, gpu_memory)
    check_at_least(1, cpu_towers=cpu_towers)
    check_per_tower(gpus_per_tower, num_towers, gpus, virtual)
    check_virtual(num_towers, gpus, virtual)
    if tf32 is not None:
        tf.config.experimental.enable_tensor_float_32_execution(tf32)
    found = tf.config.list_physical_devices("GPU")
    if gpu_memory is not None and not found:
        raise ValueError(
            f"gpu_memory limits the memory of GPUs, and there is no GPU. Received {gpu_memory}; "
            "leave it out."
        )
    if gpus is None and not found and not virtual:
        return virtual_cpus(num_towers or cpu_towers, gpus_per_tower)
    wanted = None if num_towers is None else num_towers * gpus_per_tower
    chosen = choose_gpus(found, wanted, gpus, virtual)
    tf.config.set_visible_devices([found[number] for number in chosen], "GPU")
    if virtual and (wanted or 1) > 1:
        return split_gpu(found[chosen[0]], chosen[0], wanted or 1, gpus_per_tower, gpu_memory)
    check_divides(len(chosen), gpus_per_tower)
    for number in chosen:
        limit_memory(found[number], number, gpu_memory)
    names = in_groups([str(number) for number in chosen], gpus_per_tower)
    listed = ", ".join("+".join(group) for group in names)
    count = f"{len(names)} towers" if len(names) > 1 else "1 tower"
    return devices_of("GPU", range(len(chosen)), gpus_per_tower, f"{count} on GPU {listed}")


def devices_of(kind: str, numbers: Iterable[int], per_tower: int, description: str) -> Devices:
    """Returns the devices of one kind with these numbers, `per_tower` for each tower."""
    groups = in_groups([f"/{kind}:{number}" for number in numbers], per_tower)
    return Devices(tuple(group[0] for group in groups), description, groups)


def in_groups(names: Sequence[str], size: int) -> tuple[tuple[str, ...], ...]:
    """Returns the names in groups of a size.

    >>> in_groups(["0", "1", "2", "3"], 2)
    (('0', '1'), ('2', '3'))
    """
    return tuple(tuple(names[at : at + size]) for at in range(0, len(names), size))


def check_request(
    num_towers: int | None, gpus: Sequence[int] | None, gpu_memory: float | None
) -> None:
    """Raises ValueError for a request that no machine can fulfil."""
    if num_towers is not None:
        check_at_least(1, num_towers=num_towers)
    if gpu_memory is not None and not gpu_memory > 0:
        raise ValueError(
            "gpu_memory must be above 0: gigabytes if above 1, else a fraction. "
            f"Received {gpu_memory}."
        )
    if gpus is None:
        return
    is_list = isinstance(gpus, Sequence) and all(isinstance(one, Integral) for one in gpus)
    if not is_list or not gpus or len(set(gpus)) != len(gpus) or min(gpus) < 0:
        raise ValueError(
            f"gpus must be different numbers from 0 on, such as [0, 2]. Received {gpus!r:.80}."
        )


def check_per_tower(
    per_tower: int, num_towers: int | None, gpus: Sequence[int] | None, virtual: bool
) -> None:
    """Raises ValueError for GPUs that do not make so many towers."""
    if per_tower < 1:
        raise ValueError(f"A tower has at least one GPU (--gpus-per-tower). Received {per_tower}.")
    if gpus is None or virtual:
        return
    if num_towers is not None and num_towers * per_tower != len(gpus):
        rule = "one tower per GPU" if per_tower == 1 else f"one tower for every {per_tower} GPUs"
        raise ValueError(
            f"There is {rule}. Received {num_towers} towers and the GPUs {list(gpus)}; leave the "
            "number of towers out."
        )
    check_divides(len(gpus), per_tower)


def check_divides(count: int, per_tower: int) -> None:
    """Raises ValueError unless so many GPUs make towers of the same size."""
    if count % per_tower:
        fewer = count - count % per_tower
        use = f"Use {fewer} of them (--gpus), or another" if fewer else "Give a smaller"
        raise ValueError(
            f"{count} GPUs cannot make towers of {per_tower}: {count % per_tower} would be left. "
            f"{use} --gpus-per-tower."
        )


def check_virtual(num_towers: int | None, gpus: Sequence[int] | None, virtual: bool) -> None:
    """Raises ValueError unless exactly one GPU is split, into a given number of towers."""
    if virtual and (num_towers is None or (gpus is not None and len(gpus) > 1)):
        raise ValueError(
            "A virtual run splits one GPU into several towers. Received "
            f"{num_towers} towers and the GPUs {'any' if gpus is None else list(gpus)}; give the "
            "number of towers, and one GPU at most."
        )


def choose_gpus(
    found: Sequence[tf.config.PhysicalDevice],
    num_towers: int | None,
    gpus: Sequence[int] | None,
    virtual: bool,
) -> list[int]:
    """Returns the numbers of the GPUs to use."""
    if gpus is None:
        gpus = range(1 if virtual else num_towers or len(found))
    missing = [number for number in gpus if number >= len(found)]
    if missing:
        there = (
            f"GPUs 0 to {len(found) - 1}. Choose others, use fewer towers, split one GPU with "
            "--virtual, or hide all GPUs (CUDA_VISIBLE_DEVICES=-1) to run on the CPU."
            if found
            else "no GPU. Leave out --gpus and --virtual, and towers run on virtual CPUs; if there "
            "is one, `towers doctor` looks for the reason."
        )
        raise ValueError(f"GPU {missing[0]} is not there: TensorFlow finds {there}")
    return list(gpus)


def virtual_cpus(num_towers: int, per_tower: int = 1) -> Devices:
    """Returns CPU towers: the CPU itself for one device in all, virtual CPUs for several.

    These are virtual CPUs 1, 2, ..., so that CPU 0 holds only the parameters, as it does beside
    GPUs. Each operation runs on one thread if the towers keep all cores busy.
    """
    keep_memory()
    warn_of_slow_kernels()
    count = num_towers * per_tower
    if count == 1:
        return Devices(("/CPU:0",), "1 tower on the CPU (no GPU found)")
    cpu = tf.config.list_physical_devices("CPU")[0]
    existing = tf.config.get_logical_device_configuration(cpu) or []
    if len(existing) <= count:
        configure(cpu, [tf.config.LogicalDeviceConfiguration()] * (count + 1))
        if not is_deterministic():
            share_cores(num_towers)
    towers = f"{num_towers} towers" if num_towers > 1 else "1 tower"
    each = "virtual CPUs" if per_tower == 1 else f"{per_tower} virtual CPUs"
    each += " each" * (per_tower > 1 and num_towers > 1)
    return devices_of("CPU", range(1, count + 1), per_tower, f"{towers} on {each} (no GPU found)")


def split_gpu(
    gpu: tf.config.PhysicalDevice,
    number: int,
    count: int,
    per_tower: int,
    gpu_memory: float | None,
) -> Devices:
    """Returns towers on virtual GPUs that share one GPU, to test correctness, not speed."""
    megabytes = VIRTUAL_GPU_MEGABYTES
    if gpu_memory is not None:
        megabytes = to_megabytes(gpu_memory, number) // count
    part = tf.config.LogicalDeviceConfiguration(memory_limit=megabytes)
    configure(gpu, [part] * count)
    pieces = "" if per_tower == 1 else f", {per_tower} parts a tower"
    description = (
        f"{count // per_tower} towers on GPU {number}, split into {megabytes} MB each{pieces}"
    )
    return devices_of("GPU", range(count), per_tower, description)


def limit_memory(gpu: tf.config.PhysicalDevice, number: int, gpu_memory: float | None) -> None:
    """Lets a GPU's memory grow as needed, or limits it."""
    if gpu_memory is None:
        tf.config.experimental.set_memory_growth(gpu, True)
        return
    megabytes = to_megabytes(gpu_memory, number)
    configure(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=megabytes)])


def configure(
    device: tf.config.PhysicalDevice, parts: list[tf.config.LogicalDeviceConfiguration]
) -> None:
    """Splits a physical device into logical ones; raises RuntimeError if it is in use."""
    try:
        tf.config.set_logical_device_configuration(device, parts)
    except RuntimeError as error:
        raise RuntimeError(
            f"{device.name} cannot be configured any more, because TensorFlow is already "
            "running. Select the devices before the first tensor or variable is made."
        ) from error


def to_megabytes(gpu_memory: float, number: int) -> int:
    """Returns a memory limit in megabytes; a value up to 1 is a fraction of the GPU's memory."""
    if gpu_memory > 1:
        return int(gpu_memory * 1024)
    try:
        return int(total_memory(number) * gpu_memory) // BYTES_PER_MEGABYTE
    except OSError as error:
        raise ValueError(
            f"The memory of GPU {number} is unknown, because the CUDA driver does not say it. "
            f"Received the fraction {gpu_memory}; give gigabytes (above 1) instead."
        ) from error
