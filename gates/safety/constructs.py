"""Constructs that this code never needs, in the syntax tree of Python and in C without its comments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from gates.evidence.verdict import Finding

RUNS_DATA = "it runs what it reads: data must stay data"
NETWORK = "the engine opens no connection"
SHELL = "it goes through a shell: expected a list of arguments"

PYTHON = ("engine/volta", "gates", "tasks")
MODULES = {"pickle": RUNS_DATA, "marshal": RUNS_DATA, "shelve": RUNS_DATA, "dill": RUNS_DATA}
ENGINE = "engine/"
ENGINE_MODULES = dict.fromkeys(
    ("urllib", "requests", "socket", "http", "ftplib", "smtplib", "httpx", "aiohttp"), NETWORK
)
CALLS = {
    "eval": RUNS_DATA,
    "exec": RUNS_DATA,
    "builtins.eval": RUNS_DATA,
    "builtins.exec": RUNS_DATA,
    "os.system": SHELL,
    "os.popen": SHELL,
    "subprocess.getoutput": SHELL,
    "subprocess.getstatusoutput": SHELL,
    "tempfile.mktemp": "another process may take the name first: expected mkstemp",
    "yaml.unsafe_load": RUNS_DATA,
    "yaml.unsafe_load_all": RUNS_DATA,
    "yaml.full_load": RUNS_DATA,
    "yaml.full_load_all": RUNS_DATA,
}
YAML_LOAD = ("yaml.load", "yaml.load_all")
SAFE_LOADERS = ("SafeLoader", "CSafeLoader", "BaseLoader", "CBaseLoader")
IMPORTERS = ("__import__", "importlib.import_module")
KEYWORDS = {"shell": SHELL, "allow_pickle": RUNS_DATA}  # where not False
UNSAFE = ("typ", "unsafe")  # of ruamel's YAML
REPLACED = "it changes another module for everyone: a clock, a check, a judge"
HOOKS = ("warnings.showwarning",)  # made to be set
LOADED = "sys.modules"  # the way to modules that were not imported here

C_PLACE = "engine/csrc"
C_FILES = ("*.c", "*.h", "*.def", "*.inc")
ENDS, PRINTS, OVERRUNS = "C returns a status, it ends no process", "C prints nothing", "it has no bound"
C_CALLS = {
    **dict.fromkeys(("exit", "_exit", "_Exit", "quick_exit", "abort", "assert", "__builtin_trap"), ENDS),
    **dict.fromkeys(
        ("printf", "fprintf", "vprintf", "vfprintf", "puts", "fputs", "putchar", "perror"), PRINTS
    ),
    **dict.fromkeys(("gets", "strcpy", "strcat", "sprintf", "vsprintf"), OVERRUNS),
    **dict.fromkeys(("system", "popen"), "it starts a shell"),
}
C_CALL = re.compile(rf"\b({'|'.join(C_CALLS)})\s*\(")
# Comments and literals, the longest first where one holds the other's sign.
C_TEXT = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)


def python_files(root: Path) -> list[Path]:
    return sorted(path for place in PYTHON for path in (root / place).rglob("*.py") if path.is_file())


def c_files(root: Path) -> list[Path]:
    return sorted(path for pattern in C_FILES for path in (root / C_PLACE).rglob(pattern) if path.is_file())


def judge(root: Path) -> list[Finding]:
    findings: list[Finding] = []
    for path in python_files(root):
        findings += python(path.read_text(errors="replace"), path.relative_to(root).as_posix())
    for path in c_files(root):
        findings += c(path.read_text(errors="replace"), path.relative_to(root).as_posix())
    return findings


def c(text: str, path: str) -> Iterator[Finding]:
    bare = C_TEXT.sub(lambda match: "\n" * match[0].count("\n") or " ", text)
    for match in C_CALL.finditer(bare):
        yield Finding(f"{match[1]}(): {C_CALLS[match[1]]}", path, bare.count("\n", 0, match.start()) + 1)


def python(text: str, path: str) -> list[Finding]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        return [Finding(f"it is no Python: {error}", path, getattr(error, "lineno", None) or 0)]
    modules = MODULES | (ENGINE_MODULES if path.startswith(ENGINE) else {})
    names, packages = imported(tree), set(bound_modules(tree))
    found = []
    for node in ast.walk(tree):
        said: Iterator[str] = iter(())
        if isinstance(node, ast.Call):
            said = called(node, names, modules)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            said = imports(node, modules)
        elif isinstance(node, ast.Attribute | ast.Name):
            said = changed(node, names, packages)
        found += [(getattr(node, "lineno", 0), one) for one in said]
    return [Finding(said, path, line) for line, said in sorted(found)]


def imports(node: ast.Import | ast.ImportFrom, modules: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom):
        wanted = [node.module or ""] if not node.level else []
    else:
        wanted = [alias.name for alias in node.names]
    for name in wanted:
        yield from module(name, modules)


def module(name: str, modules: dict[str, str]) -> Iterator[str]:
    if (top := name.partition(".")[0]) in modules:
        yield f"import of {name}: {modules[top]}"


def imported(tree: ast.AST) -> dict[str, str]:
    """Local name -> full name: `import os as o`, `from os import system as run`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def bound_modules(tree: ast.AST) -> Iterator[str]:
    """Local names of whole modules: `import os.path` binds os."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)


def changed(node: ast.Attribute | ast.Name, names: dict[str, str], packages: set[str]) -> Iterator[str]:
    """`time.perf_counter = mine`, `del os.fsync`, sys.modules."""
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        root = root.value
    stored = isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
    name = full_name(node, names)
    if stored and isinstance(root, ast.Name) and root.id in packages and name not in HOOKS:
        yield f"{name} is set: {REPLACED}"
    if name == LOADED:
        yield f"{LOADED}: {REPLACED}"


def full_name(node: ast.expr, names: dict[str, str]) -> str:
    """`o.system` -> os.system; empty for what is no plain name."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and (of := full_name(node.value, names)):
        return f"{of}.{node.attr}"
    return ""


def called(node: ast.Call, names: dict[str, str], modules: dict[str, str]) -> Iterator[str]:
    name = full_name(node.func, names)
    if name in CALLS:
        yield f"{name}(): {CALLS[name]}"
    if name in YAML_LOAD and loader(node) not in SAFE_LOADERS:
        yield f"{name}() without SafeLoader: {RUNS_DATA}"
    if name in IMPORTERS and node.args and isinstance(node.args[0], ast.Constant):
        yield from module(str(node.args[0].value), modules)
    for one in node.keywords:
        if isinstance(one.value, ast.Constant) and (one.arg, one.value.value) == UNSAFE:
            yield f"typ='unsafe': {RUNS_DATA}"
        off = isinstance(one.value, ast.Constant) and one.value.value in (False, None)
        if one.arg in KEYWORDS and not off:
            yield f"{one.arg}=: {KEYWORDS[one.arg]}"


def loader(call: ast.Call) -> str:
    """The last name of yaml.load's loader."""
    given = [one.value for one in call.keywords if one.arg == "Loader"] + call.args[1:2]
    return ast.unparse(given[0]).rpartition(".")[2] if given else ""
