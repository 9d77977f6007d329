"""The server's socket: errors that name its address, and the names that it has."""

import pytest

from towers.scripts.serving import server


def test_of_two_servers_that_start_at_once_one_is_told_that_the_port_is_taken():
    with server.bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with server.bind("127.0.0.1", port) as second:
            server.listen(first)
            with pytest.raises(OSError, match=f"cannot listen at 127.0.0.1, port {port}: .*in use"):
                server.listen(second)


def test_a_local_server_has_the_name_that_it_was_started_with():
    with server.bind("127.0.0.2", 0) as bound:
        names = server.local_names("My-Machine", bound)
    assert names == ("localhost", "127.0.0.1", "[::1]", "my-machine", "127.0.0.2")
