"""What the CUDA driver says of GPUs, numbered as TensorFlow numbers them.

`nvidia-smi` numbers all GPUs of a machine in the order of their PCI ids. The driver shows what
CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER and MIG leave to this process, as does TensorFlow.
"""

from __future__ import annotations

import ctypes
import functools

LIBRARY = "libcuda.so.1"
PCI_ID_LENGTH = 32


def total_memory(number: int) -> int:
    """Returns the memory of a GPU in bytes.

    Raises:
        OSError: there is no driver, or it knows no such GPU.
    """
    size = ctypes.c_size_t()
    call("cuDeviceTotalMem_v2", ctypes.byref(size), handle(number))
    return size.value


def pci_id(number: int) -> str:
    """Returns the PCI id of a GPU, such as 0000:65:00.0; errors as in `total_memory`."""
    text = ctypes.create_string_buffer(PCI_ID_LENGTH)
    call("cuDeviceGetPCIBusId", text, ctypes.c_int(PCI_ID_LENGTH), handle(number))
    return text.value.decode()


def handle(number: int) -> ctypes.c_int:
    """Returns the driver's handle of a GPU; it takes none of its memory."""
    device = ctypes.c_int()
    call("cuInit", ctypes.c_uint(0))
    call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(number))
    return device


def call(name: str, *arguments: object) -> None:
    """Calls a function of the driver; raises OSError unless it returns 0."""
    code = getattr(driver(), name)(*arguments)
    if code != 0:
        raise OSError(f"The CUDA driver's {name} failed with the error {code}.")


@functools.cache
def driver() -> ctypes.CDLL:
    """Returns the driver's library; raises OSError if there is none."""
    return ctypes.CDLL(LIBRARY)
