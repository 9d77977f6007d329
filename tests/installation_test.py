"""What is installed is one name, `towers`: a project keeps its own `models`, `data`, `scripts`.

The wheel and the sdist are built without network from a copy of the repository.
"""

import configparser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest
import yaml
from mypy.modulefinder import FindModuleCache, ModuleNotFoundReason, SearchPaths
from mypy.options import Options
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.paths import ROOT
from tests.programs import run
from towers.scripts import bootstrap

ROOMS = ("models", "data", "scripts")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
OFFLINE = ["--no-index", "--no-deps", "--no-build-isolation", "--quiet"]


def sources():
    """The files that git knows or would take, relative to the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(f"git does not tell the files of the repository: {listed.stderr.strip()}")
    return [
        pathlib.Path(name) for name in listed.stdout.splitlines() if os.path.lexists(ROOT / name)
    ]


def installed_files():
    """The modules, the typed interface and the data files that an installation must hold."""
    parents = {pathlib.Path(room): pathlib.Path("towers", room) for room in ROOMS}
    found = set()
    for path in sources():
        room = pathlib.Path(path.parts[0])
        if room.name == "towers" and not (ROOT / path).is_symlink():
            found.add(path.as_posix())
        elif room in parents:
            found.add((parents[room] / path.relative_to(room)).as_posix())
    return found


def test_ci_tests_every_python_that_is_promised():
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "setup.cfg").read_text())
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    assert workflow["jobs"]["tests"]["strategy"]["matrix"]["python"] == classifiers
    minors = range(bootstrap.OLDEST[1], bootstrap.NEWEST[1] + 1)
    assert [f"3.{minor}" for minor in minors] == classifiers


@pytest.mark.parametrize("minor", range(bootstrap.OLDEST[1], bootstrap.NEWEST[1] + 1))
def test_the_constraints_of_ci_have_a_release_of_all_that_is_required(minor):
    """Else `.ci/run` would test with releases that nobody chose, or install nothing."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    extras = parser["options.extras_require"]
    listed = [parser["options"]["install_requires"], extras["test"], extras["docs"]]
    lines = (ROOT / ".ci" / "constraints.txt").read_text().splitlines()
    python = {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.7"}

    def of_this_python(lines):
        found = [Requirement(line) for line in lines if line and not line.startswith("#")]
        return [one for one in found if one.marker is None or one.marker.evaluate(python)]

    pins = {one.name: str(one.specifier).removeprefix("==") for one in of_this_python(lines)}
    for wanted in of_this_python("\n".join(listed).splitlines()):
        name = canonicalize_name(wanted.name)
        assert wanted.specifier.contains(pins[name], prereleases=True), name


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A copy of the repository, in which a build may leave what it likes."""
    folder = tmp_path_factory.mktemp("repository")
    for path in sources():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, folder / path, follow_symlinks=False)
    return folder


@pytest.fixture(scope="module")
def sdist(repository):
    """The sdist's file."""
    build = "import setuptools.build_meta as backend; print(backend.build_sdist('dist'))"
    (repository / "dist").mkdir()
    run([sys.executable, "-c", build], cwd=repository)
    (path,) = (repository / "dist").glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """The wheel's file, built from the sdist, as for a user."""
    folder = tmp_path_factory.mktemp("wheel")
    run([*PIP, "wheel", *OFFLINE, "--wheel-dir", folder, sdist])
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("installed")
    run([*PIP, "install", *OFFLINE, "--target", folder, wheel])
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A user's project with folders of its own of the same names, none with an `__init__.py`."""
    folder = tmp_path_factory.mktemp("project")
    for room in ROOMS:
        (folder / room).mkdir()
        (folder / room / "mine.py").write_text(f"NAME = 'my {room}'\n")
    return folder


@pytest.fixture
def environment(installed):
    """The environment of a program that sees the installed wheel, and not the repository."""
    path = os.pathsep.join([str(installed), sysconfig.get_paths()["purelib"]])
    return {**os.environ, "PYTHONPATH": path}


def test_the_wheel_holds_one_name_and_every_file(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names} == {
        "towers",
        f"{'-'.join(wheel.name.split('-')[:2])}.dist-info",
    }
    assert {name for name in names if name.startswith("towers/")} == installed_files()


def test_the_sdist_holds_what_the_wheel_is_built_from(sdist):
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {"README.md", "LICENSE", "setup.cfg", "pyproject.toml"} <= names
    assert installed_files() <= names


def test_a_project_keeps_its_own_modules(project, installed, environment):
    program = (
        "import models.mine, data.mine, scripts.mine, towers, importlib.util as util\n"
        "print(models.mine.NAME, data.mine.NAME, scripts.mine.NAME, sep='\\n')\n"
        "print(towers.__file__, util.find_spec('towers.models.cnn').origin, sep='\\n')\n"
    )
    output = run([sys.executable, "-c", program], cwd=project, env=environment)
    *names, engine, zoo = output.splitlines()
    assert names == [f"my {room}" for room in ROOMS]
    assert engine == str(installed / "towers" / "__init__.py")
    assert zoo == str(installed / "towers" / "models" / "cnn.py")


@pytest.mark.slow
def test_the_installed_command_lists_recipes_and_trains(project, installed, environment):
    command = [sys.executable, installed / "bin" / "towers"]
    assert "shapes" in run([*command, "recipes"], cwd=project, env=environment)
    options = ["--steps", "2", "--set", "filters=2,3", "--run-dir", project / "run"]
    output = run([*command, "train", "shapes", *options], cwd=project, env=environment)
    assert "step 2 saved" in output
    assert (project / "run" / "run.json").is_file()


def test_an_editable_install_resolves_the_same_names(repository, project, tmp_path):
    run([*PIP, "install", *OFFLINE, "--target", tmp_path, "--editable", repository])
    program = (
        "import importlib.util as util, site, sys\n"
        "site.addsitedir(sys.argv[1])\n"
        "names = ['towers', 'towers.models', 'towers.models.cnn', 'models', 'data', 'scripts']\n"
        "print(*(util.find_spec(name).origin for name in names), sep='\\n')\n"
    )
    # Without `site`, for which this repository may be installed already.
    path = os.pathsep.join([str(tmp_path), sysconfig.get_paths()["purelib"]])
    environment = {**os.environ, "PYTHONPATH": path}
    output = run([sys.executable, "-S", "-c", program, tmp_path], cwd=project, env=environment)
    package, models, cnn, *own = output.splitlines()
    assert [package, models, cnn] == [
        str(repository / "towers" / part)
        for part in ("__init__.py", "models/__init__.py", "models/cnn.py")
    ]
    assert own == ["None"] * 3  # Namespace packages: the project's folders.


def test_type_checkers_resolve_the_same_names(repository, installed):
    """Mypy finds the zoo under its one name, in the repository and, typed, in an installation."""
    in_repository = SearchPaths((str(repository),), (), (), ())
    in_environment = SearchPaths((), (), (str(installed),), ())
    for paths, folder in ((in_repository, repository), (in_environment, installed)):
        for name in ("towers", "towers.models.cnn", "towers.data.samples.shapes"):
            found = FindModuleCache(paths, None, Options()).find_module(name)
            stem = folder.joinpath(*name.split("."))
            assert found in {str(stem / "__init__.pyi"), f"{stem}.py"}, (name, found)
    for room in ROOMS:
        found = FindModuleCache(in_environment, None, Options()).find_module(room)
        assert isinstance(found, ModuleNotFoundReason)
