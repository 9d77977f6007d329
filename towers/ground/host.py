"""The name of the host: the CPU that runs the program, beside whatever GPUs there are."""

from __future__ import annotations

HOST = "/CPU:0"
