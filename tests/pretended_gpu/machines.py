"""Machines to predict a step on: numbers as they are achieved, not as they are advertised."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Machine:
    """Seconds, bytes per second and operations per second. The order is that of `m` in clock.c.

    Attributes:
        launch_host: host time of a launch or a copy, TensorFlow's op around it included.
        launch_device: the least that a kernel takes.
        peak, efficiency: of float32 matrix products (TF32 where there is), for large ones.
        sms: multiprocessors; a product with fewer 64 x 64 tiles uses only some.
        memory: of the device.
        bytes_per_thread: what a thread of a kernel without known bytes reads and writes.
        rnn_step: the least for a time step of a cuDNN recurrent layer.
        link, latency: pinned copies between host and device.
        pageable: copies that the host stages first, and waits for.
        peer, peer_latency: copies between devices.
        nvlink: 1 if these have links of their own, 0 if they share the devices' PCIe links.
        host_memory: all copies between the host and any device together.
        wake: until a host thread notices that a device is done.
        nccl, nccl_latency: bus bandwidth of an all-reduce; what the smallest takes.
    """

    launch_host: float
    launch_device: float
    peak: float
    efficiency: float
    sms: float
    memory: float
    bytes_per_thread: float
    rnn_step: float
    link: float
    latency: float
    pageable: float
    peer: float
    peer_latency: float
    nvlink: float
    host_memory: float
    wake: float
    nccl: float
    nccl_latency: float


MACHINES = {
    "1080Ti": Machine(4e-6, 2e-6, 11.3e12, 0.65, 28, 0.75 * 484e9, 12, 12e-6, 11e9, 8e-6, 4e9,
                      9e9, 12e-6, 0, 20e9, 15e-6, 6e9, 40e-6),
    "A100": Machine(4e-6, 2e-6, 156e12, 0.45, 108, 0.8 * 1555e9, 12, 8e-6, 24e9, 6e-6, 6e9,
                    19e9, 10e-6, 0, 60e9, 15e-6, 14e9, 50e-6),
    "H100": Machine(4e-6, 2e-6, 495e12, 0.4, 132, 0.8 * 3350e9, 12, 6e-6, 50e9, 5e-6, 8e9,
                    300e9, 6e-6, 1, 120e9, 15e-6, 330e9, 30e-6),
}  # fmt: skip


def without(machine: Machine, what: str) -> Machine:
    """Returns a machine for which something is free: copies, launches, kernels or waking."""
    free = {
        "copies": {
            "link": 1e18, "latency": 0.0, "pageable": 1e18, "peer": 1e18, "peer_latency": 0.0,
            "host_memory": 1e18, "nccl": 1e18, "nccl_latency": 0.0,
        },
        "launches": {"launch_host": 0.0},
        "kernels": {"peak": 1e24, "memory": 1e21, "rnn_step": 0.0, "launch_device": 0.0},
        "waking": {"wake": 0.0},
    }  # fmt: skip
    return dataclasses.replace(machine, **free[what])
