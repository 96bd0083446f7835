"""The layer table: who may import whom. A change of this table is a decision, not a side effect.

Everything here reads source text; nothing of the package is imported.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tosnative"
TOP_LEVEL = {
    "tosnative",
    "tests",
    "examples",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
}

# From the bottom up. A module may import modules that stand before it, in this order, and nothing else of ours.
LAYERS: dict[str, str] = {
    "words": """quoting errors uri endpoint meta ranges buffers room crc64 metrics logs config credential_files credentials""",
    "wire": """wire wire.process wire.libc wire.scratch wire.budget wire.concurrency wire.hedge wire.http1 wire.retry wire.answers
        wire.signing wire.connections wire.targets wire.transfer wire.channel wire.fast_channel wire.pool wire.mailbox
        wire.outcomes wire.download wire.upload wire.query wire.refresh wire.loop wire.upkeep wire.engine
        wire.sdk_session wire.sdk wire.control""",
    "client": """growing page_shape columns pages completion deletion client
        shared index_columns index key_space listing ranged_listing source""",
    "streams": "reaper version fills pace parts_held readahead content reader parts outcome creation filling uploads writer",
    "torch": """sharding sampling options prefetch position samples datasets checkpoint
        dcp_items dcp_reads dcp_place dcp lightning_paths lightning tensors""",
    "face": "testing cli __main__",
}
ORDER = [name for names in LAYERS.values() for name in names.split()]

# wire is private: besides its own files only the client looks in (completion and deletion are parts of it).
LOOKS_INTO_WIRE = {"client", "completion", "deletion"}

# Third-party packages, each with the only modules that may import it. Anything else must be the standard library.
THIRD_PARTY = {
    "crcmod": {"crc64"},
    "urllib3": {"wire.connections"},
    "requests": {"wire.sdk_session"},  # the SDK's own transport
    "tos": {"credentials", "wire.signing", "wire.sdk"},
    "torch": {"index", "sharding", "sampling", "datasets", "dcp", "dcp_items", "dcp_reads", "lightning", "tensors"},
    "lightning": {"lightning"},
    "fsspec": {"lightning_paths"},
    "safetensors": {"tensors"},
    "pytest": {"testing.fixtures"},
}

# Imports inside a function, each with its reason. The key is module:function.
FUNCTION_IMPORTS: dict[str, str] = {
    "crc64:_through_liblzma": "absent from some builds of Python; another way is taken then",
    "crc64:_through_crcmod": "an extension that may be missing; another way is taken then",
    "credentials:_ecs_provider": "the SDK is needed on instances with a role only",
    "wire.control:_make": "the SDK takes a tenth of a second to import; reading, writing and listing do without",
    "testing.fixtures:local_tos": "pytest loads the plugin in every run of every project",
    "testing.fixtures:local_tos_session": "as above",
}

# Modules that may touch the process's environment variables.
READS_ENVIRONMENT = {"config"}

# `testing` shares no code with the client, so that the two cannot share a mistake.
TESTING_MAY_IMPORT_OURS: set[str] = set()

MAX_FILE_LINES = 320
MAX_FUNCTION_LINES = 50


@dataclass(frozen=True)
class Import:
    """One import: the module that has it, the function it stands in ("" at module level), what it names, and where."""

    module: str
    function: str
    target: str
    line: int
    typing_only: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def module_name(path: Path) -> str:
    """The module's name below the package: "wire.engine", "testing", "" for the package root."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def sources() -> Iterator[tuple[str, Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield module_name(path), path, ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def find_imports(module: str, node: ast.AST, function: str = "", typing_only: bool = False) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(module, function, alias.name, child.lineno, typing_only)
        elif isinstance(child, ast.ImportFrom):
            assert not child.level, f"{module}:{child.lineno} is a relative import"
            for alias in child.names:
                yield Import(module, function, f"{child.module}.{alias.name}", child.lineno, typing_only)
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from find_imports(module, child, child.name, typing_only)
        else:
            yield from find_imports(module, child, function, typing_only or is_type_checking(child))


def all_imports() -> list[Import]:
    return [found for module, _, tree in sources() for found in find_imports(module, tree)]


def module_names() -> set[str]:
    return {module for module, _, _ in sources()}


def our_target(found: Import, modules: set[str]) -> str | None:
    """The module of ours that an import names, "" for the package root, None where it is not ours."""
    if found.target.split(".")[0] != "tosnative":
        return None
    inner = found.target.removeprefix("tosnative").lstrip(".")
    while inner and inner not in modules:
        inner = inner.rpartition(".")[0]
    return inner


def place(module: str) -> str:
    """The entry of ORDER that a module falls under: files of testing/ and cli/ share their package's place."""
    for top in ("testing", "cli"):
        if module == top or module.startswith(top + "."):
            return top
    return module


def test_every_module_stands_in_the_table() -> None:
    assert len(ORDER) == len(set(ORDER))
    unknown = {name for name in module_names() if name and place(name) not in ORDER}
    assert not unknown, f"give these a place in LAYERS: {sorted(unknown)}"


def test_the_table_names_no_module_of_a_vague_kind() -> None:
    vague = {"utils", "util", "common", "helpers", "misc"}
    assert not {name for name in module_names() if name.rpartition(".")[2] in vague}


def test_imports_point_down() -> None:
    modules = module_names()
    wrong = []
    for found in all_imports():
        target = our_target(found, modules)
        if target is None or found.module == "" or place(found.module) == place(target) or target == "":
            continue
        if ORDER.index(place(target)) > ORDER.index(place(found.module)):
            wrong.append(str(found))
    assert not wrong, "\n".join(wrong)


def test_nobody_imports_through_the_package_root() -> None:
    modules = module_names()
    wrong = [str(found) for found in all_imports() if found.module != "" and our_target(found, modules) == ""]
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_in_a_circle() -> None:
    modules = module_names()
    edges: dict[str, set[str]] = {module: set() for module in modules}
    for found in all_imports():
        target = our_target(found, modules)
        if target:
            edges[found.module].add(target)

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        todo = list(edges[start])
        while todo:
            here = todo.pop()
            if here not in seen:
                seen.add(here)
                todo += edges[here]
        return seen

    # `from package import submodule` inside the package itself names the package first: not a circle.
    circles = sorted(module for module in modules if module and module in reach(module))
    assert not circles


def test_wire_is_private() -> None:
    modules = module_names()
    wrong = [
        str(found)
        for found in all_imports()
        if (our_target(found, modules) or "").split(".")[0] == "wire"
        and found.module.split(".")[0] != "wire"
        and found.module not in LOOKS_INTO_WIRE
    ]
    assert not wrong, "\n".join(wrong)


def test_third_party_packages_stay_in_their_modules() -> None:
    wrong = []
    for found in all_imports():
        top = found.target.split(".")[0]
        if top in sys.stdlib_module_names or top == "tosnative" or found.typing_only:
            continue
        if found.module not in THIRD_PARTY.get(top, set()):
            wrong.append(str(found))
    assert not wrong, "\n".join(wrong)


def test_testing_shares_no_code_with_the_client() -> None:
    modules = module_names()
    wrong = [
        str(found)
        for found in all_imports()
        if place(found.module) == "testing"
        and our_target(found, modules) is not None
        and place(our_target(found, modules) or "") != "testing"
        and our_target(found, modules) not in TESTING_MAY_IMPORT_OURS
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_inside_functions_are_justified() -> None:
    found = {f"{item.module}:{item.function}" for item in all_imports() if item.function}
    assert found - FUNCTION_IMPORTS.keys() == set(), "import at the top of the file, or give the reason in the table"
    assert FUNCTION_IMPORTS.keys() - found == set(), "no longer needed in the table"


def test_only_config_reads_the_environment() -> None:
    wrong = []
    for module, path, tree in sources():
        if module in READS_ENVIRONMENT or place(module) == "testing":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"):
                wrong.append(f"{path}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


def docstrings(tree: ast.Module) -> set[int]:
    """The ids of the constants that are docstrings."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                found.add(id(first.value))
    return found


def test_only_ranges_writes_range_headers() -> None:
    wrong = []
    for module, path, tree in sources():
        if module == "ranges" or place(module) == "testing":
            continue
        texts = docstrings(tree)
        for node in ast.walk(tree):
            value = node.value if isinstance(node, ast.Constant) and id(node) not in texts else None
            if isinstance(value, (str, bytes)) and (
                b"bytes=" in value if isinstance(value, bytes) else "bytes=" in value
            ):
                wrong.append(f"{path}:{getattr(node, 'lineno', 0)}")
    assert not wrong, "\n".join(wrong)


def test_the_top_level_holds_nothing_else() -> None:
    visible = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    built = {"build", "dist", "tosnative.egg-info", "__pycache__"}
    assert visible - TOP_LEVEL - built == set()


@pytest.mark.parametrize("folder", ["tosnative", "tests", "examples"])
def test_files_and_functions_are_short(folder: str) -> None:
    wrong = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if (lines := text.count("\n")) > MAX_FILE_LINES:
            wrong.append(f"{path.relative_to(ROOT)}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > MAX_FUNCTION_LINES:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {size} lines")
    assert not wrong, "\n".join(wrong)
