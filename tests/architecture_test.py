"""The house: which way imports point, and what no module does. One test for each law."""

import ast
import functools
import importlib
import re
import subprocess
import sys

import pytest

from tests.paths import ROOT
from towers.scripts.main import COMMANDS

ROOMS = ("towers", "models", "data", "scripts", "benchmarks")
GROUND = "ground"  # What the three others may import.
# The engine's rooms: each imports only from those before it.
ORDER = (
    "ground", "saving", "travel", "devices", "optimizers", "batches", "variables", "processes",
    "step", "loop", "other_steps", "layers", "compiled",
)  # fmt: skip
LARGEST_ROOM = 23  # Files.
MAY_IMPORT = {
    "ground": set(),
    "towers": {GROUND},
    "models": {GROUND},
    "data": {GROUND},
    "scripts": {GROUND, *ROOMS[:3]},
    "benchmarks": {GROUND, *ROOMS[:4]},
}
# What other_steps still takes from inside of these rooms, without a public name.
NOT_PUBLIC = {
    "asynchronous_step": {
        "step.tower_function.check_kinds", "step.exchange.Total",
        "step.results.mean_results", "variables.find_variables.captured_error",
    },
    "joint": {
        "step.tower_function.check_kinds", "variables.find_variables.trace_once",
        "variables.outside_writes.unobserved",
    },
    "asynchronous_updates": {"batches.feed.PATIENCE"},
}  # fmt: skip
PRIVATE_APIS = "towers.ground.private_apis"
PRIVATE_PACKAGES = ("keras.src", "tensorflow.compiler", "tensorflow.core", "tensorflow.python")
PICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}


def read_modules():
    """Returns {module name: syntax tree}; what is installed is linked into towers/."""
    found = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            name = name if room in ("towers", "benchmarks") else f"towers.{name}"
            if not (room == "towers" and name.split(".")[1:2] in ([one] for one in ROOMS)):
                found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


MODULES = read_modules()


def room_of(name):
    """Returns which of the folders at the top a module is in, or the ground."""
    if name.split(".")[0] == "benchmarks":
        return "benchmarks"
    second = name.split(".")[1:2]
    if second == ["__main__"]:  # `python -m towers`.
        return "scripts"
    return second[0] if second and second[0] in (*ROOMS, GROUND) else "towers"


def imports_of(name):
    """Returns the full names that a module imports, within functions and for types too."""
    is_package = any(other.startswith(name + ".") for other in MODULES)
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


def attributes_of(name):
    """Returns the dotted names that a module uses, such as `tf.device`."""
    nodes = ast.walk(MODULES[name])
    return {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}


def offenders(is_wrong):
    """Returns the modules for which `is_wrong(name)` holds."""
    return [name for name in MODULES if is_wrong(name)]


def test_all_rooms_are_read():
    assert {room_of(name) for name in MODULES} == {*ROOMS, GROUND}
    known = {"towers.step.builder", "towers.scripts.main", "towers.data.images.idx"}
    assert known | {"towers.models.cnn"} <= set(MODULES)


def test_imports_point_one_way():
    def is_wrong(name):
        ours = ("towers", "benchmarks", "tests")
        used = {other for other in imports_of(name) if other.split(".")[0] in ours}
        others = {"tests" if one.startswith("tests") else room_of(one) for one in used - {"towers"}}
        return not others - {room_of(name)} <= MAY_IMPORT[room_of(name)]

    assert not offenders(is_wrong)


def test_the_ground_imports_no_tensorflow():
    """A copy of it is beside an exported model, and `towers --help` stands on it."""
    orders = {"towers.ground.epochs", "towers.ground.random_numbers"}  # No command's help needs it.

    def is_wrong(name):
        heavy = {"tensorflow", "keras"} | (set() if name in orders else {"numpy"})
        at_the_top = [ast.Module([node], []) for node in MODULES[name].body if not is_lazy(node)]
        found = {one.split(".")[0] for tree in at_the_top for one in imports_within(tree)}
        return room_of(name) == GROUND and found & heavy

    assert not offenders(is_wrong)


def is_lazy(node):
    """Returns whether a statement of a module only defines what runs later, or is for types."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef))


def imports_within(tree):
    """Returns the names of the modules that the statements of a tree import."""
    nodes = list(ast.walk(tree))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_no_module_is_imported_by_its_old_name_at_the_top():
    """What is installed is one name: a user's own `models`, `data` or `scripts` stay his."""
    tops = set(ROOMS) - {"towers", "benchmarks"}
    assert not offenders(lambda name: {one.split(".")[0] for one in imports_of(name)} & tops)


def test_no_circle_of_imports():
    """Imports for type checkers count, and those of the packages that are imported on the way."""

    def needs(name):
        found = imports_of(name) & set(MODULES)
        return found.union(*map(parents_of, found)) - parents_of(name) - {name}

    waiting = {name: needs(name) for name in MODULES}
    while waiting:
        ready = [name for name, needed in waiting.items() if not needed & set(waiting)]
        assert ready, f"circle among {sorted(waiting)}"
        for name in ready:
            del waiting[name]


def parents_of(name):
    """Returns the packages around a module."""
    parts = name.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts))}


def engine_room_of(name):
    """Returns the room of the engine that a module is in, or None."""
    first, second, *_ = [*name.split("."), ""]
    return second if first == "towers" and second in ORDER else None


def test_the_rooms_of_the_engine_stand_in_one_order():
    folders = {one.parent.name for one in (ROOT / "towers").glob("*/__init__.py")}
    assert folders - set(ROOMS) == set(ORDER)

    def is_wrong(name):
        own = engine_room_of(name)
        used = {engine_room_of(other) for other in imports_of(name)} - {None}
        return own and any(ORDER.index(room) > ORDER.index(own) for room in used)

    assert not offenders(is_wrong)


def test_the_page_of_the_architecture_has_every_room():
    page = (ROOT / "docs" / "explanations" / "architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `towers/(\w+)/` \|", page, re.MULTILINE)
    assert tuple(listed) == ORDER
    folders = {
        str(one.parent.relative_to(ROOT))
        for room in ("data", "scripts")
        for one in (ROOT / room).glob("*/__init__.py")
    }
    rows = "\n".join(re.findall(r"^\| (`(?:data|scripts)/.*?) \|", page, re.MULTILINE))
    assert set(re.findall(r"\w+(?=/`)", rows)) == {one.partition("/")[2] for one in folders}


def test_no_room_of_the_engine_is_too_large_to_hold_in_the_head():
    sizes = {room: len(list((ROOT / "towers" / room).glob("*.py"))) for room in ORDER}
    assert max(sizes.values()) <= LARGEST_ROOM, sizes


def test_modules_do_not_import_their_own_package():
    """`import towers` within the engine would hide a circle behind `__init__`."""

    def is_wrong(name):
        if room_of(name) != "towers" or name == "towers":
            return False
        return "towers" in imports_of(name)

    assert not offenders(is_wrong)


def test_private_apis_are_imported_in_one_module():
    """But for the names of Keras's and TensorFlow's modules that are told apart as text."""

    def is_wrong(name):
        return name != PRIVATE_APIS and any(map(is_private, imports_of(name)))

    assert not offenders(is_wrong)
    module = importlib.import_module(PRIVATE_APIS)
    assert all(map(is_private, module.HANDED_ON.values()))
    assert all(getattr(module, name) is not None for name in module.HANDED_ON)
    used = {one for name in MODULES for one in imports_of(name)}
    defined = {
        node.name
        for node in MODULES[PRIVATE_APIS].body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }
    assert {f"{PRIVATE_APIS}.{name}" for name in {*module.HANDED_ON, *defined}} <= used


def is_private(name):
    """Returns whether a module belongs to what Keras and TensorFlow do not publish."""
    return any(f"{name}.".startswith(f"{package}.") for package in PRIVATE_PACKAGES)


def test_private_attributes_are_used_in_one_module():
    """Elsewhere a name with an underscore is the project's own, or of the standard library."""
    known = {"_actions", "_asdict", "_exit", "_fields", "_fill_text", "_getframe", "_replace"}
    known |= {"_ActionsContainer", "_SubParsersAction", "_towers_listeners"}
    own = {name for tree in MODULES.values() for name in own_names(tree)}
    asked_for = private_attributes()

    def is_wrong(name):
        if name == PRIVATE_APIS:
            return False
        nodes = [node for node in ast.walk(MODULES[name]) if isinstance(node, ast.Attribute)]
        used = {one.attr for one in nodes if re.match("_[^_]", one.attr)}
        texts = [node.value for node in ast.walk(MODULES[name]) if isinstance(node, ast.Constant)]
        used |= {one for one in texts if one in asked_for}
        return used - own - known

    assert not offenders(is_wrong)


def own_names(tree):
    """Yields what a module defines: functions, classes, and attributes of `self`."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        is_stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if is_stored and ast.unparse(node.value) == "self":
            yield node.attr


def private_attributes():
    """Returns the private attributes that the one module asks for."""
    nodes = list(ast.walk(MODULES[PRIVATE_APIS]))
    named = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    named |= {node.value for node in nodes if isinstance(node, ast.Constant)}
    return {one for one in named if isinstance(one, str) and re.fullmatch("_[a-z]\\w*", one)}


def test_only_commands_see_the_command_line():
    seeing = {"towers.scripts.main", "towers.scripts.options.flags"}

    def is_wrong(name):
        if name in seeing or name.startswith("towers.scripts.commands."):
            return False
        return room_of(name) == "scripts" and "argparse" in imports_of(name)

    assert not offenders(is_wrong)


def test_every_command_is_a_module():
    folder = "towers.scripts.commands."
    modules = {name.removeprefix(folder) for name in MODULES if name.startswith(folder)}
    assert modules == set(COMMANDS)


def test_devices_are_chosen_only_in_the_engine():
    scopes = {"tf.device", "tensorflow.device", "keras.device"}
    assert not offenders(lambda name: room_of(name) != "towers" and scopes & attributes_of(name))


def test_the_library_has_no_assert():
    assert not offenders(
        lambda name: any(isinstance(node, ast.Assert) for node in ast.walk(MODULES[name]))
    )


def test_tensorflow_is_used_without_compat_v1():
    def is_wrong(name):
        used = attributes_of(name) | imports_of(name)
        return any("compat.v1" in one or "compat_v1" in one for one in used)

    assert not offenders(is_wrong)


def test_nothing_is_pickled():
    unsafe = {"allow_pickle=True", "weights_only=False", "safe_mode=False"}

    def is_wrong(name):
        options = {
            ast.unparse(keyword)
            for node in ast.walk(MODULES[name])
            if isinstance(node, ast.Call)
            for keyword in node.keywords
        }
        return {one.split(".")[0] for one in imports_of(name)} & PICKLERS or unsafe & options

    assert not offenders(is_wrong)


def test_one_generator_draws_every_order():
    """Orders and augmentation are functions of (seed, epoch), drawn in one module."""
    own = {"default_rng", "Generator", "Philox", "PCG64", "RandomState", "permutation", "shuffle"}
    wrong = {f"{numpy}.random.{name}" for numpy in ("np", "numpy") for name in own}

    def is_wrong(name):
        if room_of(name) == "scripts" or name == "towers.ground.random_numbers":
            return False
        calls = (node for node in ast.walk(MODULES[name]) if isinstance(node, ast.Call))
        return wrong & {ast.unparse(call.func) for call in calls}

    assert not offenders(is_wrong)


def test_the_order_of_an_epoch_is_defined_once():
    once = {
        "RowBatches": "towers.batches.shards",
        "permutation": "towers.ground.random_numbers",
        "steps_per_epoch": "towers.ground.epochs",
    }
    kinds = (ast.FunctionDef, ast.ClassDef)
    found = {
        (node.name, name)
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, kinds) and node.name in once
    }
    assert found == set(once.items())


def test_every_module_says_what_it_owns():
    def is_wrong(name):
        first = (ast.get_docstring(MODULES[name]) or "").split("\n\n")[0].rstrip()
        return not first.endswith((".", ":"))

    assert not offenders(is_wrong)


def test_packages_only_hand_names_on():
    def is_wrong(name):
        if not any(other.startswith(name + ".") for other in MODULES):
            return False
        _, *statements = MODULES[name].body
        return not all(hands_on(node) for node in statements)

    assert not offenders(is_wrong)


def hands_on(node):
    """Returns whether a statement of a package only imports or lists names."""
    is_names = isinstance(node, ast.Assign) and "__all__" in ast.unparse(node.targets[0])
    return is_names or isinstance(node, (ast.Import, ast.ImportFrom))


def test_importing_a_module_calls_nothing_of_tensorflow():
    """Neither a device is touched nor a variable made: only definitions at the top."""
    definitions = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)

    def is_wrong(name):
        return any(
            ast.unparse(call.func).startswith(("tf.", "keras."))
            for node in MODULES[name].body
            if not isinstance(node, definitions)
            for call in ast.walk(node)
            if isinstance(call, ast.Call)
        )

    assert not offenders(is_wrong)


def test_programs_that_measure_have_the_kernels_that_towers_chooses():
    """TensorFlow without them if it comes first; what a function imports comes later anyway."""
    for path in [*(ROOT / "benchmarks").glob("*.py"), ROOT / "tests/gpu/real_laws.py"]:
        source = path.read_text(encoding="utf-8")
        names = re.findall(r"^(?:import|from) (towers|keras|tensorflow)\b", source, re.MULTILINE)
        if '__name__ == "__main__"' in source:
            assert names[:1] in ([], ["towers"]), path.name


def test_help_imports_neither_tensorflow_nor_numpy():
    """Neither that of `towers` nor that of any command."""
    script = (
        "import sys\n"
        "from towers.scripts.main import COMMANDS, main\n"
        "for arguments in [['--help'], *([name, '--help'] for name in COMMANDS)]:\n"
        "    try:\n"
        "        main(arguments)\n"
        "    except SystemExit:\n"
        "        pass\n"
        "print({'tensorflow', 'keras', 'numpy'} & set(sys.modules))\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert output.splitlines()[-1] == "set()"
    assert output.count("usage: towers") == 1 + len(COMMANDS)


def functions_of_the_engine():
    """Yields (module name, function) of every function and method of the engine."""
    for name, tree in MODULES.items():
        if room_of(name) == "towers":
            for node in ast.walk(tree):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield name, node


def num_parameters(function):
    """Returns how many parameters a function takes besides `self`."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    return len([name for name in names if name not in ("self", "cls")]) + len(
        function.args.kwonlyargs
    )


def test_no_function_of_the_engine_has_a_body_over_30_lines():
    def num_lines(function):
        body = function.body[1:] if ast.get_docstring(function) else function.body
        return body[-1].end_lineno - body[0].lineno + 1 if body else 0

    long = [(name, one.name) for name, one in functions_of_the_engine() if num_lines(one) > 30]
    assert not long


def test_no_function_of_the_engine_takes_more_than_8_parameters():
    """But those with Keras's own signature, so that a script changes in the call's name only."""
    as_in_keras = {"fit", "evaluate", "predict"}
    many = [(name, one.name) for name, one in functions_of_the_engine() if num_parameters(one) > 8]
    assert {name for _, name in many} <= as_in_keras
    assert {module.rpartition(".")[0] for module, _ in many} == {"towers.compiled"}


def test_a_step_is_made_of_at_most_5_parts():
    made = {
        node.name: child
        for name in ("step.builder", "step.evaluation", "other_steps.asynchronous_step")
        for node in ast.walk(MODULES[f"towers.{name}"])
        if isinstance(node, ast.ClassDef) and node.name.endswith("Step")
        for child in node.body
        if isinstance(child, ast.FunctionDef) and child.name == "__init__"
    }
    assert set(made) == {"TrainStep", "AsyncStep", "EvaluationStep"}
    assert all(num_parameters(function) <= 5 for function in made.values())


def test_the_engine_casts_no_type():
    assert not offenders(
        lambda name: room_of(name) == "towers" and "typing.cast" in imports_of(name)
    )


def public_names():
    """Returns what the stubs name: their own modules, and where each public name is defined."""
    stubs = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in [*(ROOT / "towers").glob("*.pyi"), *(ROOT / "towers").glob("*/__init__.pyi")]
    }
    for namespace, path in stubs.items():
        yield namespace, namespace
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                folder = ".".join(namespace.split(".")[: 2 if path.stem == "__init__" else 1])
                for alias in node.names:
                    defined = f"{folder}.{node.module}" if node.module else folder
                    yield f"{namespace}.{alias.name}", f"{defined}.{alias.name}"


def test_scripts_use_of_the_engine_only_what_is_public():
    public = {name for name, _ in public_names()} | {"towers.ray", "towers.ray.Run"}  # An extra.

    def is_wrong(name):
        of_engine = {one for one in imports_of(name) if room_of(one) == "towers"}
        own = {one for one in of_engine if one.split(".")[0] == "towers"}
        is_outside = room_of(name) in ("scripts", "benchmarks")
        return is_outside and not own <= public | {f"towers.{one}" for one in ROOMS}

    assert not offenders(is_wrong)


def test_other_steps_stand_on_the_public_parts_of_the_engine():
    """`towers.engine` and the other namespaces are enough for them, but for what is listed."""
    rooms = ("batches", "devices", "variables", "step")
    public = {defined for _, defined in public_names()}
    folder, found = "towers.other_steps.", {}
    for name in MODULES:
        used = imports_of(name) - set(MODULES) - public if name.startswith(folder) else set()
        inside = {one.removeprefix("towers.") for one in used if engine_room_of(one) in rooms}
        if inside:
            found[name.removeprefix(folder)] = inside
    assert found == NOT_PUBLIC


@pytest.mark.parametrize("file", ["slow_cases.txt", "thorough_cases.txt"])
def test_every_slow_case_is_a_test(file):
    """A case that was renamed would be a default test again, without a word."""
    lines = (ROOT / "tests" / file).read_text(encoding="utf-8").splitlines()
    for case in (line for line in lines if not line.startswith("#")):
        path, _, name = case.partition("::")
        assert name.partition("[")[0] in functions_of(ROOT / "tests" / path), case


@functools.cache
def functions_of(path):
    """Returns the names of all functions of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}
