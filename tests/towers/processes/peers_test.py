"""All processes of a cluster wait for each other, aloud and for a limited time."""

import contextlib
import socket
import threading

import pytest

from tests.programs import free_addresses
from towers.processes.peers import (
    WAITING,
    announced,
    host_and_port,
    state_of,
    wait_for_peers,
)


def wait_in_threads(addresses, indices, **options):
    """Waits as these processes; returns by number what each wrote, and the error or None.

    Who went on is a server of TensorFlow's, which those see that did not see it ready.
    """
    found, servers = {}, contextlib.ExitStack()

    def wait(index):
        lines, error = [], None
        try:
            wait_for_peers(addresses, index, write=lines.append, **options)
            servers.enter_context(serve_as_tensorflow(addresses[index]))
        except TimeoutError as late:
            error = str(late)
        found[index] = (lines, error)

    threads = [threading.Thread(target=wait, args=[index]) for index in indices]
    with servers:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found


def serve_as_tensorflow(address):
    """Returns a listener that gives no answer of ours, as the server to which a process went on."""
    listener = socket.create_server(host_and_port(address))
    threading.Thread(target=answer_otherwise, args=[listener], daemon=True).start()
    return listener


def answer_otherwise(listener):
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.sendall(b"HTTP/2 settings")
        connection.close()


def test_processes_that_are_all_there_go_on():
    found = wait_in_threads(free_addresses(4), range(4), seconds=600)
    assert all(error is None for _, error in found.values())


def test_nobody_goes_on_while_one_is_missing_and_all_name_it():
    addresses = free_addresses(3)
    found = wait_in_threads(addresses, [0, 1], seconds=3)
    for lines, error in found.values():
        assert lines == [f"waiting for {addresses[2]}, for at most 0.05 minutes ..."]
        assert error.startswith(f"{addresses[2]} did not come within 0.05 minutes.")


def test_who_went_on_already_counts_as_there():
    addresses, own = free_addresses(2), contextlib.ExitStack()

    def see_the_other_and_go_on():
        while state_of(host_and_port(addresses[0])) != WAITING:
            pass
        own.enter_context(serve_as_tensorflow(addresses[1]))

    thread = threading.Thread(target=see_the_other_and_go_on)
    thread.start()
    with own:
        assert wait_in_threads(addresses, [0], seconds=600) == {0: ([], None)}
        thread.join()


def test_who_comes_back_to_processes_that_began_without_it_is_told():
    addresses = free_addresses(2)
    told = pytest.raises(RuntimeError, match=f"{addresses[1]} began with an earlier process")
    with serve_as_tensorflow(addresses[1]), told:
        wait_for_peers(addresses, 0, seconds=600)


def test_a_port_that_is_held_for_a_moment_is_waited_for():
    addresses = free_addresses(2)
    holder = socket.socket()
    holder.bind(host_and_port(addresses[0]))
    threading.Timer(0.5, holder.close).start()
    found = wait_in_threads(addresses, [0, 1], seconds=60)
    assert all(error is None for _, error in found.values())


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_who_is_at_none_of_its_addresses_answers_at_all_and_waits_as_long_as_others(host):
    other, own = free_addresses(2)
    outside = f"{host}:{host_and_port(own)[1]}"
    with announced(host_and_port(outside)):  # As behind a translation of addresses.
        assert state_of(host_and_port(own)) == WAITING
    found = wait_in_threads([outside, other], [0, 1], seconds=3)
    assert found[0][1].startswith(f"{other} did not reach this process at {outside} within")
    assert found[1][1].startswith(f"{outside} did not come within")


@pytest.mark.parametrize("address", ["nowhere", "host:", ":1", "host:0", "host:99999", "host:x"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ValueError, match="host:port"):
        wait_for_peers(["127.0.0.1:1", address], 0)


def test_two_processes_at_one_address_are_refused():
    """TensorFlow would wait for the second one without end, deaf to signals."""
    with pytest.raises(ValueError, match="an address of its own"):
        wait_for_peers(free_addresses(1) * 2, 0)
