"""Machines that meet at a coordinator learn the same addresses, each with its own part of them."""

import concurrent.futures
import contextlib
import json
import socket
import threading
import time

import pytest

from tests.programs import wait_until
from towers.scripts.launching import rendezvous
from towers.scripts.launching.addresses import free_ports
from towers.scripts.launching.rendezvous import Node, meet

PATIENCE = 60


@pytest.fixture
def coordinator():
    return f"127.0.0.1:{free_ports(1)[0]}"


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor() as pool:
        yield pool


def host(pool, coordinator, capfd, nodes=2):
    """Starts the machine of number 0; returns the future of what it finds."""
    found = pool.submit(meet, Node(coordinator, nodes, 0), [7000], PATIENCE)
    wait_until(lambda: found.done() or "waiting for node" in capfd.readouterr().out, "the host")
    return found


def say(coordinator, content):
    """Sends content to the coordinator, and returns the connection."""
    address, port = coordinator.split(":")
    connection = socket.create_connection((address, int(port)))
    connection.sendall(content)
    return connection


def test_all_machines_learn_the_same_addresses(coordinator, pool):
    ports = {0: [7000, 7001], 1: [7002], 2: [7003, 7004]}
    found = [
        pool.submit(meet, Node(coordinator, 3, number), ports[number], PATIENCE)
        for number in (2, 1, 0)
    ]
    addresses = [f"127.0.0.1:{port}" for port in range(7000, 7005)]
    assert [one.result() for one in found] == [
        (addresses, [3, 4]), (addresses, [2]), (addresses, [0, 1]),
    ]  # fmt: skip


def test_a_machine_alone_waits_for_nobody(coordinator):
    assert meet(Node(coordinator, 1, 0), [7000]) == (["127.0.0.1:7000"], [0])


def test_a_number_is_taken_once_but_again_after_its_machine_left(coordinator, pool, capfd):
    found = host(pool, coordinator, capfd, nodes=3)
    line = json.dumps({"node": 1, "nodes": 3, "ports": [7001]}).encode() + b"\n"
    first = say(coordinator, line)
    wait_until(lambda: "waiting for node 2 at" in capfd.readouterr().out, "node 1")
    with pytest.raises(ValueError, match="another machine is node 1"):
        meet(Node(coordinator, 3, 1), [7002], PATIENCE)
    first.close()
    wait_until(lambda: "waiting for node 1, 2 at" in capfd.readouterr().out, "the end of node 1")
    others = [
        pool.submit(meet, Node(coordinator, 3, number), [7002 + number], PATIENCE)
        for number in (1, 2)
    ]
    assert found.result()[0] == ["127.0.0.1:7000", "127.0.0.1:7003", "127.0.0.1:7004"]
    assert [one.result()[1] for one in others] == [[1], [2]]


def test_another_number_of_machines_is_refused(coordinator, pool, capfd):
    found = host(pool, coordinator, capfd)
    with pytest.raises(ValueError, match="node 1 has --nnodes 3, node 0 has 2"):
        meet(Node(coordinator, 3, 1), [7001], PATIENCE)
    assert meet(Node(coordinator, 2, 1), [7001], PATIENCE)[1] == [1]
    assert found.result()[1] == [0]


DEEP = pytest.param(b"[" * 10**5 + b"\n", id="deep")


@pytest.mark.parametrize(
    "content", [b"GET / HTTP/1.0\r\n\r\n", b"[]\n", b'{"node": "1"}\n', b"\xff\n", b"", DEEP]
)
def test_strangers_change_nothing(content, coordinator, pool, capfd):
    found = host(pool, coordinator, capfd)
    say(coordinator, content).close()
    assert meet(Node(coordinator, 2, 1), [7001], PATIENCE)[1] == [1]
    assert found.result()[0] == ["127.0.0.1:7000", "127.0.0.1:7001"]


def test_a_line_that_does_not_end_holds_nobody_up():
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        stranger = socket.create_connection(listener.getsockname())
        connection, _ = listener.accept()
    with stranger, connection:
        connection.settimeout(0.5)
        drops = threading.Thread(target=lambda: [dropped(stranger) for _ in range(100)])
        drops.start()
        with pytest.raises(TimeoutError):
            rendezvous.receive(connection)
        assert drops.is_alive(), "it waited for all drops"
        connection.close()
        drops.join()


def dropped(connection):
    """Sends a byte, and waits for less than the limit of a line."""
    with contextlib.suppress(OSError):
        connection.sendall(b" ")
        time.sleep(0.1)


def test_a_name_that_no_other_machine_reaches_is_warned_of(capfd):
    for host, address in (("node0", "127.0.1.1"), ("node0", "::1")):
        rendezvous.warn_of_loopback(host, address)
        assert f"warning: {host} is {address} on this machine" in capfd.readouterr().out
    for host, address in (("localhost", "127.0.0.1"), ("127.0.0.1",) * 2, ("node0", "10.0.0.1")):
        rendezvous.warn_of_loopback(host, address)
        assert capfd.readouterr().out == ""


def test_who_does_not_come_is_named(coordinator):
    with pytest.raises(TimeoutError, match="Node 1 did not come within"):
        meet(Node(coordinator, 2, 0), [7000], 0.1)
    with pytest.raises(TimeoutError, match=f"The coordinator {coordinator} did not come"):
        meet(Node(coordinator, 2, 1), [7000], 0.1)


def test_the_port_of_the_coordinator_is_closed_after_the_meeting(coordinator, pool, capfd):
    found = host(pool, coordinator, capfd)
    meet(Node(coordinator, 2, 1), [7001], PATIENCE)
    found.result()
    with pytest.raises(OSError):
        say(coordinator, b"")
