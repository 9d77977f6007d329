"""Downloading public data sets: resumed, checked by digest, and complete or absent."""

from __future__ import annotations

import hashlib
import http.client
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from tqdm import tqdm

from towers.data.fetching.data_sets import RemoteFile, find_data_set
from towers.data.text.durable import make_folder, publish

BLOCK_SIZE = 1 << 18  # Bytes between two updates of the progress bar.
TIMEOUT = 30.0  # Seconds without a byte after which a server is given up.


def download(
    name: str, folder: str | Path, *, base_url: str | None = None, progress: bool = True
) -> Path:
    """Downloads a data set and returns its folder.

    Files that exist are not downloaded again, and an unfinished download is resumed.

    Args:
        name: mnist, fashion_mnist, cifar10 or ptb.
        folder: of the files; created if it does not exist.
        base_url: of a mirror, instead of the official address.
        progress: whether a terminal shows a progress bar.

    Raises:
        ValueError: the name is unknown, or a file is not the published one.
        ConnectionError: the server cannot be reached, refuses, or stops midway.
    """
    data_set = find_data_set(name)
    target = Path(folder)
    make_folder(target)
    for file in data_set.files:
        url = (base_url or data_set.base_url).rstrip("/") + "/" + file.name
        if file.unpacks_to is None:
            fetch(url, target / file.name, file, progress=progress)
        elif not (target / file.unpacks_to).is_dir():
            archive = fetch(url, target / file.name, file, progress=progress)
            unpack(archive, target, wanted=file.unpacks_to)
            archive.unlink()
    return target


def fetch(url: str, path: Path, file: RemoteFile, *, progress: bool) -> Path:
    """Downloads a file, unless it exists, and returns its path; its digest is checked."""
    if path.exists():
        check_digest(path, file, remedy="Move it away, or choose another folder.")
        return path
    part = path.with_name(path.name + ".part")
    if not part.exists() or digest(part, file.algorithm) != file.digest:
        receive(url, part, progress=progress)
    try:
        check_digest(part, file, remedy=f"It is deleted; fetch {url} again, or from a mirror.")
    except ValueError:
        part.unlink()
        raise
    publish(part, path)
    return path


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
    state = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(BLOCK_SIZE):
            state.update(block)
    return state.hexdigest()


def receive(url: str, part: Path, *, progress: bool) -> None:
    """Appends the missing bytes to a part file, or starts again if the server cannot resume."""
    already = part.stat().st_size if part.is_file() else 0
    with open_url(url, first_byte=already) as response:
        if response.status != http.client.PARTIAL_CONTENT:
            already = 0
        bar = tqdm(
            desc=part.stem,
            initial=already,
            total=None if response.length is None else already + response.length,
            unit="B",
            unit_scale=True,
            disable=None if progress else True,  # None: off where stderr is no terminal.
        )
        with bar, part.open("ab" if already else "wb") as stream:
            for block in blocks(response, url):
                stream.write(block)
                bar.update(len(block))


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
    except (OSError, http.client.HTTPException) as error:
        raise _failure(url, error) from error


def blocks(response: http.client.HTTPResponse, url: str) -> Iterator[bytes]:
    """Yields the body in blocks; ConnectionError if it ends too early."""
    missing = response.length
    try:
        while block := response.read(BLOCK_SIZE):
            missing = None if missing is None else missing - len(block)
            yield block
    except (OSError, http.client.HTTPException) as error:
        raise _failure(url, error) from error
    if missing:
        raise _failure(url, f"the connection ended {missing} bytes too early")


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
        # Early point releases of Python 3.10 and 3.11 lack the filter.
        safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        with tempfile.TemporaryDirectory(dir=folder, prefix=".unpacking-") as unpacked:
            tar.extractall(unpacked, members, **safe)
            publish(Path(unpacked, wanted), folder / wanted)


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
