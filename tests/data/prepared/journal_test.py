"""Files and state are those of the last save, whatever was written behind it."""

import numpy as np
import pytest

from towers.data.prepared.journal import JournalledFiles


def opened(folder):
    return JournalledFiles(
        folder, {name: folder / name for name in ("one", "other")}, {"chunks": 0}
    )


def test_what_was_not_saved_is_cut_off(tmp_path):
    with opened(tmp_path) as files:
        files.append("one", b"saved ")
        files.append("other", np.arange(2, dtype=np.uint16).data)
        files.state["chunks"] = 1
        files.save()
        files.append("one", b"lost")
        files.state["chunks"] = 9
    with opened(tmp_path) as again:
        assert again.state == {"chunks": 1}
        again.append("one", b"and more")
        again.state["chunks"] = 2
        again.save()
    assert (tmp_path / "one").read_bytes() == b"saved and more"
    assert (tmp_path / "other").read_bytes() == b"\0\0\1\0"
    with opened(tmp_path) as last:
        assert last.state == {"chunks": 2}


@pytest.mark.parametrize("save", [True, False])
def test_the_first_state_is_the_one_that_is_given(tmp_path, save):
    with opened(tmp_path) as files:
        assert files.state == {"chunks": 0}
        if save:
            files.save()
        files.append("one", b"lost")
    with opened(tmp_path) as files:
        assert files.state == {"chunks": 0}
    assert (tmp_path / "one").read_bytes() == b""
