"""Files: those below a folder in a fixed order, through links but never round; their digests."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

TRAIN, VALIDATION, TEST = PARTS = ("train", "validation", "test")  # Of a data set.
PART_NAMES = {part: part for part in PARTS} | {"training": TRAIN, "testing": TEST}
# How names begin that are not data.
OF_SYSTEMS = (".", "__MACOSX", "@eaDir", "$RECYCLE.BIN", "#recycle", "lost+found")
PART_NAMES |= dict.fromkeys(("valid", "val", "dev", "eval", "evaluation"), VALIDATION)
FILLERS = {
    "set", "sets", "image", "images", "img", "imgs", "picture", "pictures", "photo", "photos",
    "text", "texts", "data", "dataset", "file", "files", "folder", "dir", "split", "seg", "cropped",
}  # fmt: skip
PART_WORD = re.compile(rf"({'|'.join(PART_NAMES)})(set|images|data)?$")


def files_below(folder: Path) -> Iterator[Path]:
    """Yields the files of a folder and of those in it, sorted, hidden ones left out.

    Raises:
        ValueError: a link leads back to a folder that it is in.
        OSError: a folder cannot be read.
    """
    for here, files in folders_below(folder):
        base = Path(sys.intern(str(here)))
        yield from (base / name for name in files)


def folders_below(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yields the folder and each one in it with its files; raises as `files_below` does."""

    def refuse(error: OSError) -> None:
        raise error

    for here, folders, files in os.walk(folder, followlinks=True, onerror=refuse):
        folders[:] = sorted(name for name in folders if not is_of_system(name))
        for name in folders:
            check_link(Path(here, name))
        yield Path(here), sorted(name for name in files if not is_of_system(name))


def is_of_system(name: str) -> bool:
    """Returns whether a file or folder of this name is hidden, or is a system's own.

    >>> is_of_system("@eaDir"), is_of_system(".git"), is_of_system("cats")
    (True, True, False)
    """
    return name.startswith(OF_SYSTEMS)


def part_of_folder(name: str, shared: Collection[str] = ()) -> str | None:
    """Returns the part that a folder's name says, None for another name.

    Args:
        name: of the folder.
        shared: words that others have, too, and that tell nothing.

    >>> part_of_folder("seg_train"), part_of_folder("TestSet"), part_of_folder("trains")
    ('train', 'test', None)
    """
    words = [word for word in words_of(name) if word not in shared]
    match = PART_WORD.match(words[0]) if len(words) == 1 else None
    return PART_NAMES[match[1]] if match else None


def words_of(name: str) -> list[str]:
    """Returns the words of a folder's name, without those that tell nothing."""
    return [word for word in re.split(r"[\W_\d]+", name.lower()) if word and word not in FILLERS]


def check_link(folder: Path) -> None:
    """Raises ValueError for a link to a folder that holds it: there would be no end of folders."""
    if not folder.is_symlink():
        return
    above = {one.resolve() for one in folder.absolute().parents}  # Some may be links, too.
    if folder.resolve() in above.union(folder.parent.resolve().parents):
        raise ValueError(
            f"{folder} is a link to {folder.resolve()}, which holds it: its files would come "
            "again and again. Remove the link."
        )


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Returns a file that is open to read; OSError for a pipe, which may never end, or a device."""
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "a pipe or a device, no file", os.fspath(path))
    return open(path, "rb")


def reason_of(error: BaseException) -> str:
    """Returns why a file could not be read: the system's words without number and name."""
    return getattr(error, "strerror", None) or str(error)


def hash_file(path: str | os.PathLike[str], state: Any) -> str:
    """Adds a file's content to a state of `hashlib`; returns its digest in hexadecimal."""
    with open_file(path) as file:
        while block := file.read(1 << 20):
            state.update(block)
    return str(state.hexdigest())


def suffix_of(path: Path) -> str:
    """Returns a file's suffix in small letters, or words for none.

    >>> suffix_of(Path("a.HEIC")), suffix_of(Path("notes"))
    ('.heic', 'without a suffix')
    """
    return path.suffix.lower() or "without a suffix"


def format_suffixes(counts: Counter[str]) -> str:
    """Returns how many files there are of each suffix, the most frequent first.

    >>> format_suffixes(Counter({".txt": 1, ".heic": 12}))
    '12 .heic, 1 .txt'
    """
    return ", ".join(f"{count:,} {suffix}" for suffix, count in counts.most_common())
