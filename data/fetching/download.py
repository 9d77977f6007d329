"""Downloading public data sets: resumed, checked by digest, and complete or absent."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from tqdm import tqdm

from towers.data.fetching.data_sets import DATA_SETS, RemoteFile
from towers.data.folders import hash_file, reason_of
from towers.ground.arguments import check_choice
from towers.ground.durable import make_folder, publish
from towers.ground.locks import is_at, lock

BLOCK_SIZE = 1 << 18  # Bytes between two updates of the progress bar.
TIMEOUT = 30.0  # Seconds without a byte after which a server is given up.
RATE_SECONDS = 60.0  # Of the time after which the rate counts.
LOWEST_RATE = 1000.0  # Bytes a second; with fewer a server is given up.
UNPACKING = ".unpacking-"


def download(name: str, folder: str | Path, *, base_url: str | None = None) -> Path:
    """Downloads a data set and returns its folder.

    Files that exist are not downloaded again, and an unfinished download is resumed.

    Args:
        name: mnist, fashion_mnist, cifar10 or ptb.
        folder: of the files; created if it does not exist.
        base_url: of a mirror, instead of the official address.

    Raises:
        ValueError: the name is unknown, the address is none of the web, or a file is not the
            published one.
        ConnectionError: the server cannot be reached, refuses, or stops midway.
    """
    check_choice("name", name, DATA_SETS)
    data_set = DATA_SETS[name]
    address = data_set.base_url if base_url is None else base_url
    check_address(address)
    target = Path(folder)
    make_folder(target)
    for leftover in target.glob(f"{UNPACKING}*"):  # Of a killed process.
        shutil.rmtree(leftover, ignore_errors=True)
    for file in data_set.files:
        url = address.rstrip("/") + "/" + file.name
        if file.unpacks_to is None:
            fetch(url, target / file.name, file)
        elif not (target / file.unpacks_to).is_dir():
            archive = fetch(url, target / file.name, file)
            unpack(archive, target, wanted=file.unpacks_to)
            archive.unlink()
        elif is_published(target / file.name, file):  # Killed before it could remove it.
            (target / file.name).unlink()
    return target


def check_address(address: str) -> None:
    """Raises ValueError unless an address can be one of the web."""
    expected = "expected an address such as https://example.org/files"
    if not address.lower().startswith(("http://", "https://")):
        raise ValueError(f"{expected}, received {address!r}.")
    try:
        urllib.parse.urlsplit(address)
    except ValueError as error:
        raise ValueError(f"{expected}, received {address!r}: {error}.") from error


def fetch(url: str, path: Path, file: RemoteFile) -> Path:
    """Downloads a file, unless it exists, and returns its path; its digest is checked."""
    if path.exists():
        check_digest(path, file, remedy="Move it away, or choose another folder.")
        return path
    part = path.with_name(path.name + ".part")
    with part.open("ab") as stream:
        lock_part(stream, part)
        try:
            if not is_published(part, file):
                receive(url, stream, file.size)
            stream.flush()
            check_digest(part, file, remedy=f"It is deleted; fetch {url} again, or from a mirror.")
        except ValueError:
            part.unlink()
            raise
        except OSError:
            if not os.fstat(stream.fileno()).st_size:
                part.unlink()
            raise
        publish(part, path)
    return path


def lock_part(stream: BinaryIO, part: Path) -> None:
    """Locks an open part file; BlockingIOError if another process downloads it."""
    try:
        lock(stream.fileno())
        if is_at(stream.fileno(), part):  # Otherwise another process has just published it.
            return
    except BlockingIOError:
        pass
    except OSError:  # A disk that cannot lock.
        return
    raise BlockingIOError(
        f"Another process downloads {part}. Wait for its end, or choose another folder."
    )


def is_published(path: Path, file: RemoteFile) -> bool:
    """Returns whether a file is there, and the published one."""
    is_whole = path.is_file() and path.stat().st_size == file.size
    return is_whole and digest(path, file.algorithm) == file.digest


def check_digest(path: Path, file: RemoteFile, *, remedy: str) -> None:
    """Raises ValueError unless the file is the published one."""
    found = digest(path, file.algorithm)
    if found != file.digest:
        raise ValueError(
            f"{path}: expected a file with {file.algorithm} digest {file.digest}, found {found}. "
            f"{remedy}"
        )


def digest(path: Path, algorithm: str) -> str:
    """Returns the hexadecimal digest of a file."""
    return hash_file(path, hashlib.new(algorithm, usedforsecurity=False))


def receive(url: str, stream: BinaryIO, size: int) -> None:
    """Appends the missing bytes to a part file, or starts again if the server cannot resume.

    Raises:
        ValueError: the server has more bytes than the file.
        ConnectionError: it cannot be reached, stops midway, or is too slow.
    """
    already = os.fstat(stream.fileno()).st_size
    if already >= size:  # It has all its bytes, and not the right ones.
        stream.truncate(already := 0)
    with open_url(url, first_byte=already) as response:
        if response.status != http.client.PARTIAL_CONTENT:
            stream.truncate(already := 0)
        if response.length is not None:
            check_size(url, already + response.length, size)
        bar = tqdm(
            desc=Path(stream.name).stem,
            initial=already,
            total=size,
            unit="B",
            unit_scale=True,
            disable=None,  # Off where stderr is no terminal.
        )
        with bar:
            for block in blocks(response, url):
                already += len(block)
                check_size(url, max(already, size), size)
                stream.write(block)
                bar.update(len(block))
    if already < size:
        raise _failure(url, f"the connection ended {size - already} bytes too early")


def check_size(url: str, found: int, size: int) -> None:
    """Raises ValueError if a server has another number of bytes than the published file."""
    if found != size:
        raise ValueError(
            f"{url}: expected {size} bytes, the server has {found} or more. It is not the "
            "published file: fetch it from another address with --url."
        )


def open_url(url: str, *, first_byte: int) -> http.client.HTTPResponse:
    """Returns the response whose body begins at that byte, or at 0 with status 200."""
    headers = {"Range": f"bytes={first_byte}-"} if first_byte else {}
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and first_byte:
            return open_url(url, first_byte=0)
        raise _failure(url, error) from error
    except urllib.error.URLError as error:
        inner = error.reason  # The system's error, or text.
        raise _failure(url, inner if isinstance(inner, str) else reason_of(inner)) from error
    except (OSError, http.client.HTTPException) as error:
        raise _failure(url, reason_of(error)) from error


def blocks(response: http.client.HTTPResponse, url: str) -> Iterator[bytes]:
    """Yields the body in blocks; ConnectionError if it is broken off or too slow."""
    began, received = time.monotonic(), 0
    try:
        while block := response.read1(BLOCK_SIZE):
            received += len(block)
            yield block
            passed = time.monotonic() - began
            if passed > RATE_SECONDS and received / passed < LOWEST_RATE:
                raise TimeoutError(f"{received} bytes in {passed:.0f} seconds are too few")
    except (OSError, http.client.HTTPException) as error:
        raise _failure(url, reason_of(error)) from error


def _failure(url: str, reason: object) -> ConnectionError:
    return ConnectionError(
        f"Could not fetch {url}: {reason}. Run the same command again to resume."
    )


def unpack(archive: Path, folder: Path, *, wanted: str) -> None:
    """Unpacks the wanted folder of a tar archive; it appears only when it is complete.

    Raises:
        ValueError: a member is outside of the wanted folder or no plain file; nothing is written.
    """
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        check_members(archive, members, wanted=wanted)
        with tempfile.TemporaryDirectory(dir=folder, prefix=UNPACKING) as unpacked:
            for member in members:
                unpack_member(tar, member, Path(unpacked, member.name))
            publish(Path(unpacked, wanted), folder / wanted)


def unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    """Writes a file or makes a folder, with the modes of any other: an archive's may lock it."""
    content = tar.extractfile(member)
    if content is None:
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with content, path.open("wb") as file:
        shutil.copyfileobj(content, file)


def check_members(archive: Path, members: Sequence[tarfile.TarInfo], *, wanted: str) -> None:
    """Raises ValueError unless all members are plain files or folders in the wanted folder."""
    if not members:
        raise ValueError(f"{archive}: expected a folder {wanted}, found an empty archive.")
    for member in members:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or path.parts[:1] != (wanted,):
            raise ValueError(
                f"{archive}: expected only members below {wanted}, found {member.name!r}. "
                "Nothing was unpacked."
            )
        if not (member.isfile() or member.isdir()):
            raise ValueError(
                f"{archive}: expected only files and folders, found that {member.name!r} is a "
                "link or a device. Nothing was unpacked."
            )
