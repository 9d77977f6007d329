"""Downloads from real servers on loopback: whole, resumed, broken, wrong and malicious."""

import contextlib
import fcntl
import gzip
import hashlib
import http.server
import io
import os
import pty
import socket
import struct
import subprocess
import sys
import tarfile
import termios
import threading

import numpy as np
import pytest

from tests.paths import CORPORA, ROOT, missing
from tests.programs import PATIENCE
from towers.data.fetching import data_sets, download
from towers.data.fetching.data_sets import DataSet, RemoteFile
from towers.data.images import cifar10, idx
from towers.data.reading.word_files import read_words

FASHION_MNIST = CORPORA / "fashion_mnist"
PTB = CORPORA / "ptb"
CONTENT = np.random.default_rng(0).bytes(600_000)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `server.files`, with what the server is told to do wrong."""

    def do_GET(self):
        server, name = self.server, self.path.lstrip("/")
        server.requests.append((name, self.headers.get("Range")))
        if name not in server.files:
            self.send_error(404)
            return
        content = server.files[name]
        first = self.first_byte() if server.ranges else 0
        if first and first >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        if server.states_length:
            self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        self.wfile.write(content[first : server.breaks_at])
        if server.hangs:
            server.released.wait(PATIENCE)

    def first_byte(self):
        return int(self.headers.get("Range", "bytes=0-")[len("bytes=") : -1])

    def log_message(self, *_):
        """Says nothing."""


class Server(http.server.ThreadingHTTPServer):
    """A server on loopback; its attributes are what tests change."""

    daemon_threads = True
    ranges = True
    states_length = True
    breaks_at = None
    hangs = False

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.requests, self.released = files, [], threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        """A client that hangs up is no error here."""


@contextlib.contextmanager
def serve(files):
    server = Server(files)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def server():
    with serve({"thing.gz": CONTENT}) as server:
        yield server


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def publish(monkeypatch):
    """Returns a function that makes `thing` an image set of one file with such content."""

    def publish(content=CONTENT, *, name="thing.gz", unpacks_to=None, size=None):
        digest = hashlib.sha256(content).hexdigest()
        file = RemoteFile(name, digest, size or len(content), unpacks_to)
        monkeypatch.setitem(data_sets.DATA_SETS, "thing", DataSet("http://127.0.0.1:9/", (file,)))

    publish()
    return publish


def get(server, folder):
    return download.download("thing", folder, base_url=server.url)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.usefixtures("publish")
def test_file_arrives_whole_under_its_name(server, tmp_path):
    folder = tmp_path / "new" / "folder"
    assert get(server, folder) == folder
    assert (folder / "thing.gz").read_bytes() == CONTENT
    assert names_in(folder) == ["thing.gz"]


@pytest.mark.usefixtures("publish")
def test_length_need_not_be_stated(server, tmp_path):
    server.states_length = False
    get(server, tmp_path)
    assert (tmp_path / "thing.gz").read_bytes() == CONTENT


@pytest.mark.usefixtures("publish")
def test_complete_file_is_not_fetched_again(server, tmp_path):
    get(server, tmp_path)
    get(server, tmp_path)
    assert len(server.requests) == 1


@pytest.mark.usefixtures("publish")
def test_other_file_of_that_name_is_kept_and_refused(server, tmp_path):
    (tmp_path / "thing.gz").write_bytes(b"my own")
    with pytest.raises(ValueError, match=r"thing\.gz: expected .* Move it away, or choose another"):
        get(server, tmp_path)
    assert (tmp_path / "thing.gz").read_bytes() == b"my own"
    assert server.requests == []


@pytest.mark.usefixtures("publish")
def test_connection_broken_midway_is_resumed(server, tmp_path):
    server.breaks_at = 400_000
    with pytest.raises(ConnectionError):
        get(server, tmp_path)
    assert names_in(tmp_path) == ["thing.gz.part"]
    server.breaks_at = None
    get(server, tmp_path)
    assert (tmp_path / "thing.gz").read_bytes() == CONTENT
    assert server.requests == [("thing.gz", None), ("thing.gz", "bytes=400000-")]


@pytest.mark.usefixtures("publish")
def test_a_file_cut_short_without_a_stated_length_is_resumed(server, tmp_path):
    server.breaks_at, server.states_length = 400_000, False
    with pytest.raises(ConnectionError, match=r"ended 200000 bytes too early.* to resume"):
        get(server, tmp_path)
    server.breaks_at = None
    get(server, tmp_path)
    assert (tmp_path / "thing.gz").read_bytes() == CONTENT


@pytest.mark.usefixtures("publish")
def test_broken_connection_says_how_to_resume(server, tmp_path):
    server.breaks_at = 400_000
    expected = f"{server.url}/thing.gz: .*200000 .*Run the same command again to resume"
    with pytest.raises(ConnectionError, match=expected):
        get(server, tmp_path)


@pytest.mark.usefixtures("publish")
def test_server_that_ignores_ranges_starts_over(server, tmp_path):
    (tmp_path / "thing.gz.part").write_bytes(CONTENT[:1000])
    server.ranges = False
    get(server, tmp_path)
    assert (tmp_path / "thing.gz").read_bytes() == CONTENT
    assert server.requests == [("thing.gz", "bytes=1000-")]


@pytest.mark.usefixtures("publish")
def test_complete_part_only_gets_its_name(server, tmp_path):
    (tmp_path / "thing.gz.part").write_bytes(CONTENT)
    get(server, tmp_path)
    assert names_in(tmp_path) == ["thing.gz"]
    assert server.requests == []


@pytest.mark.usefixtures("publish")
def test_part_longer_than_the_file_starts_over(server, tmp_path):
    (tmp_path / "thing.gz.part").write_bytes(CONTENT + b"more")
    get(server, tmp_path)
    assert (tmp_path / "thing.gz").read_bytes() == CONTENT


@pytest.mark.usefixtures("publish")
@pytest.mark.parametrize("begun", [0, 1000])
def test_wrong_bytes_are_deleted_and_refused(server, tmp_path, begun):
    (tmp_path / "thing.gz.part").write_bytes(CONTENT[:begun])
    server.files["thing.gz"] = CONTENT[:-1] + b"?"
    found = hashlib.sha256(server.files["thing.gz"]).hexdigest()
    expected = f"sha256 digest {hashlib.sha256(CONTENT).hexdigest()}, found {found}"
    with pytest.raises(ValueError, match=expected):
        get(server, tmp_path)
    assert names_in(tmp_path) == []


@pytest.mark.usefixtures("publish")
def test_missing_page_is_a_clear_error(server, tmp_path):
    del server.files["thing.gz"]
    with pytest.raises(ConnectionError, match=f"{server.url}/thing.gz: .*404.* to resume"):
        get(server, tmp_path)


@pytest.mark.usefixtures("publish")
def test_refused_connection_is_a_clear_error(tmp_path):
    with socket.socket() as bound:  # Bound but not listening, so nobody else has the port.
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=f"{url}/thing.gz: .*refused.* to resume"):
            download.download("thing", tmp_path, base_url=url)


@pytest.mark.usefixtures("publish")
@pytest.mark.parametrize("url", ["", "nonsense", "data:,x", "file:///", "http://[::1/"])
def test_an_address_that_is_none_of_the_web_is_refused_and_a_part_stays(tmp_path, url):
    part = tmp_path / "thing.gz.part"
    part.write_bytes(CONTENT[:1000])
    with pytest.raises(ValueError, match=r"expected an address such as https://.*received '"):
        download.download("thing", tmp_path, base_url=url)
    assert part.read_bytes() == CONTENT[:1000]


@pytest.mark.usefixtures("publish")
@pytest.mark.parametrize("breaks_at", [0, 1000])
def test_silent_server_is_a_clear_error(server, tmp_path, monkeypatch, breaks_at):
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    server.breaks_at, server.hangs = breaks_at, True
    with pytest.raises(ConnectionError, match=r"thing.gz: .*timed out.* to resume"):
        get(server, tmp_path)


def tar_bytes(*members):
    """Returns a gzipped tar archive of TarInfo objects, each file holding its size in zeros."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return stream.getvalue()


def member(name, *, size=0, kind=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, target
    return info


def cifar10_archive():
    return tar_bytes(
        member("cifar-10-batches-bin", kind=tarfile.DIRTYPE),
        member("cifar-10-batches-bin/data_batch_1.bin", size=2 * 3073),
        member("cifar-10-batches-bin/test_batch.bin", size=3073),
    )


def test_archive_is_unpacked_and_deleted(server, tmp_path, publish):
    server.files["thing.tar.gz"] = cifar10_archive()
    publish(server.files["thing.tar.gz"], name="thing.tar.gz", unpacks_to="cifar-10-batches-bin")
    folder = get(server, tmp_path)
    assert names_in(tmp_path) == ["cifar-10-batches-bin"]
    assert len(cifar10.load(folder, "train")) == 2
    get(server, tmp_path)
    assert len(server.requests) == 1


def test_what_is_unpacked_has_modes_of_its_own(server, tmp_path, publish):
    """An archive's folder without x could not be entered, a file without r not be read."""
    parts = [
        member("wanted", kind=tarfile.DIRTYPE),
        member("wanted/inner/file", size=3),
        member("wanted/program", size=3),
    ]
    for part, mode in zip(parts, [0o600, 0o000, 0o4755], strict=True):
        part.mode = mode
    server.files["thing.tar.gz"] = tar_bytes(*parts)
    publish(server.files["thing.tar.gz"], name="thing.tar.gz", unpacks_to="wanted")
    folder = get(server, tmp_path) / "wanted"
    (tmp_path / "made").mkdir()
    (tmp_path / "written").touch()
    made, written = ((tmp_path / name).stat().st_mode for name in ("made", "written"))
    assert {path.stat().st_mode for path in (folder, folder / "inner")} == {made}
    files = folder / "inner" / "file", folder / "program"
    assert {path.stat().st_mode for path in files} == {written}


@pytest.mark.parametrize(
    "evil",
    [
        member("/tmp/evil.bin", size=3),
        member("../evil.bin", size=3),
        member("cifar-10-batches-bin/../../evil.bin", size=3),
        member("elsewhere/evil.bin", size=3),
        member("cifar-10-batches-bin/link", kind=tarfile.SYMTYPE, target="/etc"),
        member("cifar-10-batches-bin/link", kind=tarfile.SYMTYPE, target="test_batch.bin"),
        member("cifar-10-batches-bin/link", kind=tarfile.LNKTYPE, target="/etc/passwd"),
        member("cifar-10-batches-bin/pipe", kind=tarfile.FIFOTYPE),
        member("cifar-10-batches-bin/device", kind=tarfile.CHRTYPE),
    ],
    ids=lambda info: info.name + "->" + info.linkname,
)
def test_archive_that_leaves_its_folder_is_refused(server, tmp_path, publish, evil):
    content = tar_bytes(member("cifar-10-batches-bin/test_batch.bin", size=3073), evil)
    server.files["thing.tar.gz"] = content
    publish(content, name="thing.tar.gz", unpacks_to="cifar-10-batches-bin")
    folder = tmp_path / "deep" / "folder"
    with pytest.raises(ValueError, match="Nothing was unpacked"):
        get(server, folder)
    assert names_in(folder) == ["thing.tar.gz"]
    assert names_in(tmp_path) == ["deep"]
    assert names_in(tmp_path / "deep") == ["folder"]


def test_empty_archive_is_refused(server, tmp_path, publish):
    server.files["thing.tar.gz"] = tar_bytes()
    publish(server.files["thing.tar.gz"], name="thing.tar.gz", unpacks_to="wanted")
    with pytest.raises(ValueError, match="expected a folder wanted, found an empty archive"):
        get(server, tmp_path)


@pytest.mark.parametrize(
    ("name", "hint"), [("cifar-10", "cifar10"), ("mnits", "mnist"), ("fashion", "fashion_mnist")]
)
def test_unknown_name_suggests_the_nearest(tmp_path, name, hint):
    expected = f"mnist, fashion_mnist, cifar10, ptb. Received '{name}'. Did you mean {hint}?"
    with pytest.raises(ValueError) as caught:
        download.download(name, tmp_path / "folder")
    assert str(caught.value).endswith(expected)
    assert names_in(tmp_path) == []


def test_sources_have_digests_of_the_right_length():
    for source in data_sets.DATA_SETS.values():
        assert source.base_url.startswith("http") and source.base_url.endswith("/")
        for file in source.files:
            assert len(file.digest) == 2 * hashlib.new(file.algorithm).digest_size


@pytest.mark.skipif(not FASHION_MNIST.is_dir(), reason=missing("fashion_mnist"))
def test_published_fashion_mnist_passes_its_digests(tmp_path):
    names = [file.name for file in data_sets.DATA_SETS["fashion_mnist"].files]
    with serve({name: (FASHION_MNIST / name).read_bytes() for name in names}) as server:
        folder = download.download("fashion_mnist", tmp_path, base_url=server.url + "/")
    assert len(idx.load(folder, "test", name="fashion_mnist")) == 10_000


@pytest.mark.skipif(not PTB.is_dir(), reason=missing("ptb"))
def test_published_penn_treebank_passes_its_digests(tmp_path):
    names = [file.name for file in data_sets.DATA_SETS["ptb"].files]
    with serve({name: (PTB / name).read_bytes() for name in names}) as server:
        folder = download.download("ptb", tmp_path, base_url=server.url + "/")
    assert len(read_words(folder)["train"].split()) == 887_521


PROGRAM = """
import sys
from towers.data.fetching import data_sets, download
file = data_sets.RemoteFile("thing.gz", sys.argv[3], 600_000)
data_sets.DATA_SETS["thing"] = data_sets.DataSet("http://127.0.0.1:9/", (file,))
download.download("thing", sys.argv[1], base_url=sys.argv[2])
sys.exit("tensorflow" in sys.modules)
"""


def open_terminal():
    """Returns the reading and the writing end of a terminal of 24 rows and 80 columns."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    return reader, writer


@pytest.mark.parametrize("terminal", [True, False])
def test_bar_is_for_terminals_only(server, tmp_path, terminal):
    """It also checks that a download does not load TensorFlow."""
    reader, writer = open_terminal() if terminal else os.pipe()
    digest = hashlib.sha256(CONTENT).hexdigest()
    arguments = [str(tmp_path), server.url, digest]
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], cwd=ROOT, stderr=writer, stdout=subprocess.PIPE
    )
    os.write(writer, b"end")
    shown = b""
    while not shown.endswith(b"end"):
        shown += os.read(reader, 100_000)
    os.close(reader)
    os.close(writer)
    assert process.returncode == 0 and process.stdout == b""
    assert (b"thing.gz" in shown and b"600k" in shown) == terminal
    assert bool(shown.strip(b"\rend")) == terminal


def test_gzip_content_is_not_decompressed_on_the_way(server, tmp_path, publish):
    server.files["thing.gz"] = gzip.compress(b"content")
    publish(server.files["thing.gz"])
    get(server, tmp_path)
    assert gzip.decompress((tmp_path / "thing.gz").read_bytes()) == b"content"


@pytest.mark.parametrize("states_length", [True, False])
def test_a_server_with_more_bytes_than_the_file_is_refused(
    states_length, server, publish, tmp_path
):
    server.states_length = states_length
    publish(size=5000)
    with pytest.raises(ValueError, match="expected 5000 bytes, the server has"):
        get(server, tmp_path)
    assert names_in(tmp_path) == []


def test_a_server_that_is_too_slow_is_given_up_and_resumed(server, publish, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(download, "RATE_SECONDS", 0.0)
        patch.setattr(download, "LOWEST_RATE", 1e12)
        with pytest.raises(ConnectionError, match="are too few"):
            get(server, tmp_path)
    assert names_in(tmp_path) == ["thing.gz.part"]
    get(server, tmp_path)
    assert (tmp_path / "thing.gz").read_bytes() == CONTENT


def test_of_several_at_once_one_downloads_and_the_others_are_told(server, publish, tmp_path):
    server.breaks_at, server.hangs = 1000, True
    with open(tmp_path / "thing.gz.part", "ab") as part:
        fcntl.flock(part, fcntl.LOCK_EX)  # As the first one does.
        for _ in range(2):
            with pytest.raises(OSError, match="Another process downloads"):
                get(server, tmp_path)
    assert names_in(tmp_path) == ["thing.gz.part"]


def test_what_a_killed_unpacking_left_goes(publish, tmp_path):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        member = tarfile.TarInfo("wanted/file")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"abc"))
    archive = stream.getvalue()
    publish(archive, name="all.tar.gz", unpacks_to="wanted")
    (tmp_path / ".unpacking-abc").mkdir()
    (tmp_path / ".unpacking-abc" / "half").write_bytes(b"a")
    with serve({"all.tar.gz": archive}) as server:
        get(server, tmp_path)
        assert names_in(tmp_path) == ["wanted"]
        (tmp_path / "all.tar.gz").write_bytes(archive)  # Killed before it was removed.
        get(server, tmp_path)
    assert names_in(tmp_path) == ["wanted"]
