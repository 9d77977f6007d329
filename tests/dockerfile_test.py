"""The Dockerfile, which no test builds: what it copies exists and what it starts is a command."""

import json
import re

from tests.paths import ROOT
from towers.scripts.main import build_parser

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_it_copies_what_an_installation_is_built_from():
    copied = {
        name
        for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE)
        for name in line.split()
    }
    assert all((ROOT / name).exists() for name in copied)
    assert {"setup.cfg", "README.md", "towers", "models", "data", "scripts"} <= copied
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {f"!{name}" for name in copied} <= set(kept)


def test_it_starts_the_service():
    entry, arguments = (
        json.loads(re.search(rf"^{word} (.+)$", DOCKERFILE, re.MULTILINE)[1])
        for word in ("ENTRYPOINT", "CMD")
    )
    options = build_parser().parse_args([*entry, *arguments][1:])
    assert (entry[0], options.command, options.host) == ("towers", "serve", "0.0.0.0")
