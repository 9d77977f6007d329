"""A network of its own is entered as a whole, or not at all."""

import subprocess
import sys

import pytest

from tests.paths import ROOT

ENTER = """
import os, socket
from towers.scripts.launching import network
before = os.stat("/proc/self/ns/user").st_ino, os.stat("/proc/self/ns/net").st_ino
{}
try:
    network.enter_private_network()
    print(socket.if_nameindex())
except OSError as error:
    after = os.stat("/proc/self/ns/user").st_ino, os.stat("/proc/self/ns/net").st_ino
    print(error.strerror, after == before)
"""
# As where unshare works, and the process then has no right to name its user.
HALF = "network.socket.socket = lambda *_: (_ for _ in ()).throw(OSError(13, 'Permission denied'))"


def outcome(change):
    command = [sys.executable, "-c", ENTER.format(change)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def found():
    """What a system that gives a network of its own prints of it."""
    text = outcome("")
    if "True" in text:
        pytest.skip(f"this system allows no private network: {text}")
    return text


def test_it_has_nothing_but_a_loopback(found):
    assert found == "[(1, 'lo')]\n"


@pytest.mark.usefixtures("found")
def test_a_system_that_refuses_half_way_leaves_the_process_where_it_was():
    assert outcome(HALF) == "Permission denied True\n"
