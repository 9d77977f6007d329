"""A peer that has ended, that was replaced or that answers no more is named, and ends the wait."""

import queue
import socket

import pytest
import tensorflow as tf

from tests.programs import free_addresses
from tests.towers.processes.peers_test import serve_as_tensorflow
from towers.processes import watch
from towers.processes.peers import announced, host_and_port
from towers.processes.processes import join_processes
from towers.processes.watch import LostPeerError, Watch


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    for name in ("LOOK_SECONDS", "AGAIN_SECONDS", "STAYING_SECONDS"):
        monkeypatch.setattr(watch, name, 0.01)
    monkeypatch.setattr(watch, "NAMING_SECONDS", 0.4)


def watched(addresses, silent_seconds=600.0):
    """Returns a watch of process 0, and the queue of the lines with which it ends sums."""
    lines = queue.SimpleQueue()
    return Watch(addresses, 0, silent_seconds, lines.put), lines


def end(listener):
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_who_has_ended_is_named_and_ends_all_sums():
    addresses = free_addresses(3)
    others = [serve_as_tensorflow(address) for address in addresses[1:]]
    watch, lines = watched(addresses)
    end(others[1])
    line = f"worker 2 at {addresses[2]} has ended; start the same command again"
    assert lines.get() == line

    @watch.naming
    def total():
        raise tf.errors.UnavailableError(None, None, "Collective ops is aborted by: ...")

    with pytest.raises(LostPeerError, match=line):
        total()
    end(others[0])


def test_another_process_in_the_place_of_one_is_no_sign_of_it():
    addresses = free_addresses(2)
    with announced(host_and_port(addresses[1])):
        _, lines = watched(addresses)
        assert lines.get() == f"worker 1 at {addresses[1]} has ended; start the same command again"


def test_who_answers_no_more_is_lost_after_the_given_time():
    addresses = free_addresses(2)
    with socket.create_server(host_and_port(addresses[1])):  # It accepts, and says nothing.
        watch, lines = watched(addresses, silent_seconds=1.5)
        assert "does not answer" in watch.find_lost()  # For an error that came earlier.
        assert lines.get() == (
            f"worker 1 at {addresses[1]} has not answered for 1.5 seconds; "
            "start the same command again"
        )


def test_an_error_of_which_no_peer_is_the_cause_stays_what_it_is():
    addresses = free_addresses(2)
    with serve_as_tensorflow(addresses[1]):
        watch, _ = watched(addresses)
        assert watch.find_lost() == ""


@pytest.mark.parametrize("message, told", [
    ("Ops is aborted by: NCCL: no socket.\nMore", r"^NCCL: no socket\. Set NCCL_SOCKET_IFNAME"),
    ("Collective instance 9 expected type 0 and data_type 3 but got type 0 and ...",
     "The processes are at different places"),
], ids=["NCCL that cannot connect", "processes that add different things"])  # fmt: skip
def test_what_collectives_say_is_one_line_with_a_remedy(message, told):
    addresses = free_addresses(2)
    with serve_as_tensorflow(addresses[1]):
        watch, _ = watched(addresses)

        @watch.naming
        def total():
            raise tf.errors.InternalError(None, None, message)

        with pytest.raises(RuntimeError, match=told):
            total()


def test_tensorflow_that_has_begun_alone_cannot_join(monkeypatch):
    config = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
    monkeypatch.setenv("TF_CONFIG", config)
    tf.zeros([])
    with pytest.raises(ValueError, match=r"Call towers\.processes\.join_processes\(\) before"):
        join_processes()
