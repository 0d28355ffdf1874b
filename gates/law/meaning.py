"""What a diff does to its own judges: fewer tests, new skips, lost assertions, wider tolerances, less input.

Read from the syntax tree, not from lines: a test that moves to another file or is renamed with its body kept
has not gone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gates.evidence.verdict import Finding

SKIPS = ("skip", "skipif", "xfail", "importorskip", "slow")
WIDER_IF_MORE = re.compile(
    r"(^|_)(tol|tolerance|atol|rtol|ulps?|eps|margin|abs|rel|allowed)($|_)", re.IGNORECASE
)
SMALLER_IF_LESS = re.compile(
    r"(^|_)(rounds|repeats|pairs|steps|samples|copies|bytes|rows|sizes|shapes|lengths|seeds|threads|floor|"
    r"examples|max_examples|counts?|cases|runs)($|_)",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Test:
    """What one test function checks, and on how much."""

    path: str
    line: int
    body: str
    asserts: int
    skips: list[str]
    parameters: int


@dataclass(slots=True)
class Suite:
    """What some files check together. constants: name of a number or a collection -> (path, line, value)."""

    tests: dict[str, list[Test]] = field(default_factory=dict)
    asserts: dict[str, int] = field(default_factory=dict)
    numbers: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)
    sizes: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)


def read(files: Mapping[str, str]) -> Suite:
    suite = Suite()
    for path, text in files.items():
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            suite.unreadable.append(path)
            continue
        suite.asserts[path] = asserts_in(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                suite.tests.setdefault(node.name, []).append(test_of(path, node))
        for name, line, value in named_values(tree):
            number = number_of(value)
            if number is not None:
                suite.numbers[path, name] = (line, number)
            elif isinstance(value, ast.Tuple | ast.List | ast.Set | ast.Dict):
                suite.sizes[path, name] = (
                    line,
                    len(value.keys if isinstance(value, ast.Dict) else value.elts),
                )
    return suite


def test_of(path: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Test:
    skips = [name for one in ast.walk(node) if (name := skip_of(one))]
    parameters = 1
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and name_of(decorator.func).endswith("parametrize"):
            for argument in decorator.args[1:2]:
                if isinstance(argument, ast.List | ast.Tuple):
                    parameters *= max(1, len(argument.elts))
    body = "\n".join(ast.dump(one) for one in node.body)
    return Test(path, node.lineno, body, asserts_in(node), skips, parameters)


def name_of(node: ast.AST) -> str:
    """`pytest.mark.skip` as text; nothing for what is no name."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def skip_of(node: ast.AST) -> str:
    """`mark.skip`, `pytest.skip(...)` and the like."""
    name = name_of(node) if isinstance(node, ast.Attribute) else ""
    return name if name.startswith("pytest.") and name.rpartition(".")[2] in SKIPS else ""


def asserts_in(node: ast.AST) -> int:
    """assert statements, pytest.raises and calls of functions that are named for asserting."""
    count = 0
    for one in ast.walk(node):
        if isinstance(one, ast.Assert):
            # `assert True` and `assert x or True` check nothing
            count += not always_true(one.test)
        elif isinstance(one, ast.Call):
            last = name_of(one.func).rpartition(".")[2]
            count += last.startswith(("assert", "check")) or name_of(one.func) in (
                "pytest.raises",
                "pytest.warns",
            )
    return count


def always_true(test: ast.expr) -> bool:
    if isinstance(test, ast.Constant):
        return bool(test.value)
    return isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) and any(map(always_true, test.values))


def named_values(tree: ast.Module) -> Iterator[tuple[str, int, ast.expr]]:
    """Constants of the module, defaults of parameters, keywords of calls: a name and what it is given. The
    name carries where it stands, and counts where it stands there more than once."""
    seen: dict[str, int] = {}

    def distinct(name: str) -> str:
        seen[name] = seen.get(name, 0) + 1
        return name if seen[name] == 1 else f"{name} #{seen[name]}"

    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield distinct(node.targets[0].id), node.lineno, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield distinct(node.target.id), node.lineno, node.value
        elif isinstance(node, ast.FunctionDef):
            arguments = node.args.posonlyargs + node.args.args
            given = arguments[len(arguments) - len(node.args.defaults) :] if node.args.defaults else []
            for argument, default in zip(given, node.args.defaults, strict=True):
                yield distinct(f"{node.name}.{argument.arg}"), default.lineno, default
            for argument, one in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                if one is not None:
                    yield distinct(f"{node.name}.{argument.arg}"), one.lineno, one
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg:
                    yield distinct(f"{name_of(node.func)}.{keyword.arg}"), keyword.value.lineno, keyword.value


def number_of(node: ast.expr) -> float | None:
    """The value of an expression of numbers alone, such as `2 * 2**-24` or `32 << 20`."""
    try:
        return eval_numbers(node)
    except (ArithmeticError, ValueError, TypeError):
        return None


MOST_SHIFT = (
    1 << 10
)  # of an exponent or a shift: a source file must not be able to make a judge compute for ever


def eval_numbers(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # type: ignore[arg-type]  # the line above has looked
    if isinstance(node, ast.UnaryOp):
        value = eval_numbers(node.operand)
        if isinstance(node.op, ast.USub | ast.UAdd):
            return -value if isinstance(node.op, ast.USub) else value
        raise ValueError(node)
    if not isinstance(node, ast.BinOp):
        raise ValueError(node)
    left, right = eval_numbers(node.left), eval_numbers(node.right)
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    if isinstance(node.op, ast.Mult):
        return left * right
    if isinstance(node.op, ast.Div):
        return left / right
    if isinstance(node.op, ast.Pow | ast.LShift) and abs(right) <= MOST_SHIFT:
        return float(left**right if isinstance(node.op, ast.Pow) else left * 2.0**right)
    raise ValueError(node)


def compare(base: Suite, head: Suite) -> list[Finding]:
    """What the head checks less than the base did."""
    found: list[Finding] = []
    found += [
        Finding("it cannot be parsed, so nobody can say what it checks", path) for path in head.unreadable
    ]
    bodies = {test.body for tests in head.tests.values() for test in tests}
    for name, tests in base.tests.items():
        now = list(head.tests.get(name, []))
        for test in tests:
            same_file = next((one for one in now if one.path == test.path), None)
            after = same_file or (now[0] if now else None)
            if after is None:
                if test.body not in bodies:
                    found.append(Finding(f"test {name} was deleted", test.path, test.line))
                continue
            now.remove(after)
            found += weaker(name, test, after)
    for path, count in base.asserts.items():
        after_count = head.asserts.get(path)
        if (
            after_count is not None
            and after_count < count
            and not path.rpartition("/")[2].startswith("test_")
        ):
            found.append(Finding(f"assertions: {count} before, {after_count} now", path))
    for (path, name), (_, before) in base.numbers.items():
        line, after_value = head.numbers.get((path, name), (0, before))
        short = name.rpartition(".")[2].split(" ")[0]
        if after_value > before and WIDER_IF_MORE.search(short):
            found.append(Finding(f"tolerance {name}: {before:g} before, {after_value:g} now", path, line))
        if after_value < before and SMALLER_IF_LESS.search(short):
            found.append(
                Finding(f"{name}: {before:g} before, {after_value:g} now: less is judged", path, line)
            )
    for (path, name), (_, count) in base.sizes.items():
        line, now_count = head.sizes.get((path, name), (0, count))
        short = name.rpartition(".")[2].split(" ")[0]
        if now_count < count and (SMALLER_IF_LESS.search(short) or short.isupper()):
            found.append(
                Finding(f"{name}: {count} entries before, {now_count} now: less is judged", path, line)
            )
    return found


def weaker(name: str, before: Test, after: Test) -> Iterator[Finding]:
    if after.asserts < before.asserts:
        yield Finding(
            f"test {name} asserts less: {before.asserts} before, {after.asserts} now", after.path, after.line
        )
    new = list(after.skips)
    for skip in before.skips:
        if skip in new:
            new.remove(skip)
    if new:
        yield Finding(f"test {name} has a new {new[0]}", after.path, after.line)
    if after.parameters < before.parameters:
        yield Finding(
            f"test {name} has fewer cases: {before.parameters} before, {after.parameters} now",
            after.path,
            after.line,
        )
