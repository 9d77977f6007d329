from .cpu import num_cores as num_cores
from .driver import pci_id as pci_id
from .op_devices import format_op_devices as format_op_devices
from .op_devices import record_op_devices as record_op_devices
from .op_devices import short_device as short_device
from .selection import Devices as Devices
