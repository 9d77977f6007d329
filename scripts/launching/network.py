"""A network of their own for the processes of a local launch, which nothing else can reach.

TensorFlow's server listens on all interfaces and authenticates nobody: anyone who reaches it can
read and write files as the user. A network namespace has only a loopback of its own
(`man 7 network_namespaces`). The launcher goes into it, and all that it starts is there too.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from pathlib import Path

CLONE_NEWNET = 0x40000000
CLONE_NEWUSER = 0x10000000
SIOCSIFFLAGS = 0x8914  # netdevice(7)
IFF_UP = 1


def enter_private_network() -> None:
    """Moves this process, of one thread, into a new network whose loopback is up, for ever.

    A child tries it first: some systems refuse it half-way, where there is no way back.

    Raises:
        OSError: the system gives none; the message says why.
    """
    if not hasattr(os, "fork"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    child = os.fork()
    if not child:
        code = errno.ENOSYS
        try:
            enter()
            code = 0
        except OSError as error:
            code = error.errno or code
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))
    enter()


def enter() -> None:
    """Moves this process into a new network; raises OSError if that fails, maybe half-way."""
    try:
        unshare(CLONE_NEWNET)  # For root: in a user namespace it would lose its rights.
    except PermissionError:
        user, group = os.getuid(), os.getgid()
        unshare(CLONE_NEWUSER | CLONE_NEWNET)
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    import fcntl  # Not on every system.

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def unshare(flags: int) -> None:
    """Calls the C library's `unshare`; raises OSError if it fails, or if there is none."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "unshare", None)
    if function is None:
        raise OSError(errno.ENOSYS, "this system has no unshare()")
    if function(flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
