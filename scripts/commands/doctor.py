"""`towers doctor`: checks that this machine trains correctly, and says what to do if it does not.

Checks the software, the GPUs, the memory and the disk, and trains a few steps on one tower and on
all towers, which must end with the same weights. The exit code is 1 if something is wrong.

    towers doctor
    towers doctor --towers 4 --json
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from towers.ground.progress import count_of
from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.options.setting import Folder
from towers.scripts.shown import show, show_json
from towers.scripts.training.options import DeviceOptions
from towers.scripts.wrong_input import wrong_input

if TYPE_CHECKING:
    from towers.scripts.diagnosis.findings import Finding

USUAL = {"run_dir", "json", "towers", "gpus", "parameters"}
COLOUR_OF = {"ok": "green", "warning": "yellow", "wrong": "red"}
FEWEST_TOWERS = 2  # On virtual CPUs, where there is no GPU.


@dataclasses.dataclass(frozen=True)
class DoctorOptions:
    """What to look at.

    Attributes:
        run_dir: where your runs will be.
        json: print one JSON object as the last line.
    """

    devices: DeviceOptions
    run_dir: Folder = "runs"
    json: bool = False


def run(options: DoctorOptions) -> int:
    """Prints a line for each finding."""
    import_tensorflow_quietly()
    from towers.scripts.diagnosis.findings import OK, WRONG

    findings = []
    with wrong_input(ValueError):
        for finding in examine(options):
            findings.append(finding)
            remedy = f"; {finding.remedy}" if finding.remedy else ""
            line = f"{finding.state:<7} | {finding.what}: {finding.found}{remedy}"
            show(line, flush=True, colour=COLOUR_OF[finding.state])
    wrong = sum(finding.state == WRONG for finding in findings)
    warnings = sum(finding.state != OK for finding in findings) - wrong
    show(f"{count_of(len(findings), 'finding')}: {wrong} wrong, {count_of(warnings, 'warning')}")
    if options.json:
        show_json({"findings": [finding._asdict() for finding in findings]})
    return 1 if wrong else 0


def examine(options: DoctorOptions) -> Iterator[Finding]:
    """Yields all findings, the quick ones first."""
    from towers.scripts.diagnosis import findings, first_law
    from towers.scripts.training.session import choose_devices

    yield from findings.find_software()
    yield from findings.find_processor()
    yield from findings.find_gpus()
    yield from findings.find_room(Path(options.run_dir))
    cpu_towers = max(FEWEST_TOWERS, options.devices.cpu_towers)
    chosen = choose_devices(dataclasses.replace(options.devices, cpu_towers=cpu_towers))
    yield findings.Finding(findings.OK, "towers", chosen.description)
    every = tuple(itertools.chain(*chosen.groups))
    if len(every) > 1:
        yield first_law.check_copies(every)
    if len(chosen.towers) > 1:
        yield from first_law.compare_steps(chosen.towers)
