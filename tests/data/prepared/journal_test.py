"""Files and state are those of the last save, whatever was written behind it."""

import numpy as np
import pytest

from towers.data.prepared.journal import JournalledFiles


def opened(folder):
    return JournalledFiles(folder, {name: folder / name for name in ("one", "other")})


def test_what_was_not_saved_is_cut_off(tmp_path):
    files = opened(tmp_path)
    files.append("one", b"saved ")
    files.append("other", np.arange(2, dtype=np.uint16).data)
    files.save({"chunks": 1}, np.array([[1, 2], [3, 4]]))
    files.append("one", b"lost")
    files.close()
    again = opened(tmp_path)
    assert again.state == {"chunks": 1}
    np.testing.assert_array_equal(again.array(), [[1, 2], [3, 4]])
    again.append("one", b"and more")
    again.save({"chunks": 2}, np.array([5]))
    again.close()
    assert (tmp_path / "one").read_bytes() == b"saved and more"
    assert (tmp_path / "other").read_bytes() == b"\0\0\1\0"
    last = opened(tmp_path)
    np.testing.assert_array_equal(last.array(), [5])
    last.close()
    assert len(list(tmp_path.glob("*.npy"))) == 1


@pytest.mark.parametrize("save", [True, False])
def test_the_first_state_is_empty(tmp_path, save):
    files = opened(tmp_path)
    assert files.state == {} and files.array() is None
    if save:
        files.save({})
    files.append("one", b"lost")
    files.close()
    opened(tmp_path).close()
    assert (tmp_path / "one").read_bytes() == b""
