"""The house: which way imports point, and what no module does."""

import ast
import pathlib
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).parents[1]
PACKAGES = ("towers", "models", "data", "scripts")
MAY_IMPORT = {"towers": set(), "models": set(), "data": set(), "scripts": set(PACKAGES[:3])}
PICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}


def modules():
    """Returns {module name: syntax tree} of everything that is installed."""
    found = {}
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            parts = path.relative_to(REPOSITORY).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


MODULES = modules()
EACH_MODULE = pytest.mark.parametrize("name", MODULES)


def imports_of(name):
    """Returns the full names that a module imports, inside of functions too."""
    is_package = any(other.startswith(name + ".") for other in MODULES) or "." not in name
    parent = name.split(".") if is_package else name.split(".")[:-1]
    found = set()
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = parent[: len(parent) - node.level + 1] if node.level else []
            base = ".".join([*base, *([node.module] if node.module else [])])
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


def needs_at_run_time(name):
    """Returns the modules of the house that a module imports, but for type checkers only."""
    tree = MODULES[name]
    for_types = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and id(node) not in for_types:
            names = {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
            found |= names & set(MODULES)
        elif isinstance(node, ast.Import) and id(node) not in for_types:
            found |= {alias.name for alias in node.names} & set(MODULES)
    return found - {name}


def attributes_of(name):
    """Returns the dotted names that a module uses, such as `tf.device`."""
    nodes = ast.walk(MODULES[name])
    return {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}


def test_all_packages_are_read():
    assert {name.split(".")[0] for name in MODULES} == set(PACKAGES)
    assert {"towers.builder", "scripts.main", "data.idx", "models.cnn"} <= set(MODULES)


@EACH_MODULE
def test_imports_point_one_way(name):
    own = name.split(".")[0]
    others = {imported.split(".")[0] for imported in imports_of(name)} & {*PACKAGES, "tests"}
    assert others - {own} <= MAY_IMPORT[own]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_package_imports_itself_in_a_circle(package):
    graph = {name: needs_at_run_time(name) for name in MODULES if name.split(".")[0] == package}
    # A package hands names on: that a module's parent is imported first is no circle.
    graph = {name: needs - {package} for name, needs in graph.items() if name != package}
    waiting = dict(graph)
    while waiting:
        ready = [name for name, needs in waiting.items() if not needs & set(waiting)]
        assert ready, f"circle among {sorted(waiting)}"
        for name in ready:
            del waiting[name]


@pytest.mark.parametrize("package", ["towers"])
def test_modules_do_not_import_their_own_package(package):
    """`import towers` inside of towers would hide a circle behind `__init__`."""
    for name in MODULES:
        if name.startswith(package + "."):
            assert package not in needs_at_run_time(name), name


@EACH_MODULE
def test_devices_are_chosen_only_in_towers(name):
    if name.split(".")[0] != "towers":
        assert not {"tf.device", "tensorflow.device", "keras.device"} & attributes_of(name)


@EACH_MODULE
def test_the_library_has_no_assert(name):
    assert not [node for node in ast.walk(MODULES[name]) if isinstance(node, ast.Assert)]


@EACH_MODULE
def test_tensorflow_is_used_without_compat_v1(name):
    used = attributes_of(name) | imports_of(name)
    assert not [one for one in used if "compat.v1" in one or "compat_v1" in one]


@EACH_MODULE
def test_nothing_is_pickled(name):
    assert not {imported.split(".")[0] for imported in imports_of(name)} & PICKLERS
    options = {
        ast.unparse(keyword)
        for node in ast.walk(MODULES[name])
        if isinstance(node, ast.Call)
        for keyword in node.keywords
    }
    assert not {"allow_pickle=True", "weights_only=False", "safe_mode=False"} & options


@EACH_MODULE
def test_every_module_says_what_it_owns(name):
    docstring = ast.get_docstring(MODULES[name])
    assert docstring, f"{name} has no docstring"
    assert docstring.split("\n\n")[0].rstrip().endswith((".", ":")), docstring


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_only_hand_names_on(package):
    _, *statements = MODULES[package].body
    for node in statements:
        is_names = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        assert is_names or isinstance(node, (ast.Import, ast.ImportFrom)), ast.unparse(node)


@EACH_MODULE
def test_importing_a_module_calls_nothing_of_tensorflow(name):
    """Neither a device is touched nor a variable made: only definitions at the top."""
    allowed = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)
    for node in MODULES[name].body:
        if isinstance(node, allowed):
            continue
        for call in ast.walk(node):
            if isinstance(call, ast.Call):
                function = ast.unparse(call.func)
                assert not function.startswith(("tf.", "keras.")), f"{name}: {ast.unparse(call)}"


def test_help_does_not_import_tensorflow():
    script = (
        "import sys\n"
        "import scripts.main\n"
        "try:\n"
        "    scripts.main.main(['--help'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "print('tensorflow' in sys.modules)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout
    assert output.splitlines()[-1] == "False"
