"""Build, test and try Volta: `python3 noxfile.py -l` lists what there is.

This file runs by itself on a bare machine: `python3 noxfile.py -s NAME` puts nox into .venv when it
is not installed, and goes on. Who has nox says `nox -s NAME`. Arguments after `--` go to the session.
"""

# Down to `import nox` this must parse on any Python 3, so that an old one gets a line, not a traceback.
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent
OLDEST_PYTHON = (3, 11)
OLDEST_NOX = "2025.5.1"


def bootstrap(arguments: "list[str]") -> None:
    """Replaces this process by nox, or exits with one line that says why it cannot."""
    if sys.version_info[:2] < OLDEST_PYTHON:
        give_up(
            "this is Python {}.{}: Volta needs {}.{} or newer".format(*sys.version_info[:2], *OLDEST_PYTHON)
        )
    python = Path(sys.executable)
    if not has_nox(python):
        python = ROOT / ".venv" / "bin" / "python"
        if not has_nox(python):
            install_nox(python)
    os.execv(python, [str(python), "-m", "nox", "-f", str(ROOT / "noxfile.py"), *arguments])


def give_up(line: str) -> None:
    sys.exit(f"noxfile: {line}")


def has_nox(python: Path) -> bool:
    """Whether this interpreter runs, is new enough, and has a nox that is new enough."""
    check = (
        "import sys, nox; from importlib.metadata import version;"
        "number = lambda text: [int(part) for part in text.split('.')[:3]];"
        f"sys.exit(sys.version_info[:2] < {OLDEST_PYTHON} or number(version('nox')) < number('{OLDEST_NOX}'))"
    )
    return succeeds([python, "-c", check])


def install_nox(python: Path) -> None:
    """Makes .venv, or completes one, with nox in it."""
    where = ROOT / ".venv"
    if not succeeds([python, "-c", f"import sys, pip; sys.exit(sys.version_info[:2] < {OLDEST_PYTHON})"]):
        if where.exists():
            give_up(".venv holds no Python 3.11 or newer with pip: remove it and run this again")
        if not find_spec("venv") or not find_spec("ensurepip"):
            give_up(to_install([debian_python() + "-venv", *missing_for_building()]))
        print("noxfile: making .venv", flush=True)
        failed = 1
        try:
            failed, output = run([sys.executable, "-m", "venv", where])
        finally:  # also when interrupted: half an environment must not stay
            if failed:
                shutil.rmtree(where, ignore_errors=True)
        if failed:
            give_up(f"could not make .venv: {last_line(output)}")
    print("noxfile: installing nox into .venv", flush=True)
    failed, output = run(
        [python, "-m", "pip", "install", "--disable-pip-version-check", f"nox>={OLDEST_NOX}"]
    )
    if failed:
        give_up(f"could not install nox: {pip_problem(output) or last_line(output)}")


def missing_for_building() -> "list[str]":
    """Debian's names of the packages without which no C extension can be compiled."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "gcc")[0]
    missing = []
    if not shutil.which(compiler):
        missing.append("gcc")
    elif not succeeds([compiler, "-E", "-x", "c", "-include", "stdlib.h", os.devnull]):
        missing.append("libc6-dev")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        missing.append(debian_python() + "-dev")
    return missing


def debian_python() -> str:
    return "python{}.{}".format(*sys.version_info[:2])


def to_install(packages: "list[str]") -> str:
    return (
        f"this machine lacks {', '.join(packages)}: an administrator can `apt install {' '.join(packages)}`"
    )


def pip_problem(output: str) -> str:
    """One line where no network explains it all; else nothing: pip's own lines must be read."""
    signs = (
        "NewConnectionError",
        "NameResolutionError",
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "ProxyError",
    )
    fetched_nothing = (
        "No matching distribution" in output or "Could not install packages due to an OSError" in output
    )
    offline = fetched_nothing and any(sign in output for sign in signs)
    return "pip cannot reach its package index; is there a network?" if offline else ""


def last_line(output: str) -> str:
    return output.strip().rpartition("\n")[2]


def run(command: "list[str | Path]") -> "tuple[int, str]":
    """A command's exit code and all that it printed; one that is not there has failed."""
    pipe, stdout = subprocess.PIPE, subprocess.STDOUT
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=stdout, errors="replace")
    except OSError as error:
        return 127, str(error)
    return done.returncode, done.stdout


def succeeds(command: "list[str | Path]") -> bool:
    return run(command)[0] == 0


if __name__ == "__main__":
    try:
        bootstrap(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)

# --- the sessions ---------------------------------------------------------------------------------
import hashlib
import importlib.machinery
import json
from collections.abc import Iterable

import nox
from nox.command import CommandFailed

nox.needs_version = f">={OLDEST_NOX}"
nox.options.reuse_venv = "yes"
nox.options.stop_on_first_error = False

PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
C_SOURCES = ROOT / "engine" / "csrc"
GATE_OPTIONS = ("--base", "--head", "--seed", "--json", "--own", "--evidence")


# The gates, in the order in which `nox` asks them. Each is `python -m gates NAME`; arguments go to it, such
# as `-- --base origin/main --head REV --seed N --json`.


@nox.session(venv_backend="none")
def fmt(session: nox.Session) -> None:
    """Gate: formatting of Python and C. `format` applies it."""
    gate_session(session, "fmt")


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Gate: ruff, clang-tidy, import edges, forbidden compiler flags, kernel names, generated files."""
    gate_session(session, "lint")


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """Gate: mypy --strict."""
    gate_session(session, "types")


@nox.session(venv_backend="none")
def policy(session: nox.Session) -> None:
    """Gate: the change's tier, RFC, waivers, owners, and what it does to its own judges."""
    gate_session(session, "policy")


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """Gate: every test but the slow ones, with the coverage floor. `-- tests/ops -k softmax` runs some."""
    if session.posargs and not session.posargs[0].startswith(GATE_OPTIONS):
        run_pytest(session, *session.posargs)
    else:
        gate_session(session, "tests")


@nox.session(venv_backend="none", default=False)
def coverage(session: nox.Session) -> None:
    """Gate: the tests run the lines that a change adds; a page for each file in the evidence."""
    gate_session(session, "coverage")


@nox.session(venv_backend="none")
def parity(session: nox.Session) -> None:
    """Gate: every operation on every instruction set equals the base's plain C in every bit."""
    gate_session(session, "parity")


@nox.session(venv_backend="none")
def determinism(session: nox.Session) -> None:
    """Gate: one hash over threads, instruction sets, batches, chunks, fusion and tuning."""
    gate_session(session, "determinism")


@nox.session(venv_backend="none")
def memory(session: nox.Session) -> None:
    """Gate: planned bytes are measured bytes, nothing grows, no peak is above its baseline."""
    gate_session(session, "memory")


@nox.session(venv_backend="none")
def bench_smoke(session: nox.Session) -> None:
    """Gate: instructions, allocations, bytes and steps do not grow; time by pairs of base and head."""
    gate_session(session, "bench_smoke")


@nox.session(venv_backend="none", default=False)
def bench(session: nox.Session) -> None:
    """Gate, slow: cases larger than the caches, on one thread and on all; time by pairs of base and head."""
    gate_session(session, "bench")


@nox.session(venv_backend="none", default=False)
def sanitizers(session: nox.Session) -> None:
    """Gate, slow: the kernels under AddressSanitizer, UndefinedBehaviorSanitizer and valgrind."""
    gate_session(session, "sanitizers")


@nox.session(venv_backend="none", default=False)
def planning(session: nox.Session) -> None:
    """Gate, slow: how long compiling takes, how often a plan is found again."""
    gate_session(session, "planning")


@nox.session(venv_backend="none", default=False)
def api(session: nox.Session) -> None:
    """Gate: a public name that goes is in the changelog."""
    gate_session(session, "api")


@nox.session(venv_backend="none", default=False)
def capability(session: nox.Session) -> None:
    """Gate: governance/capability.md is what the tables of operations and kernels say."""
    gate_session(session, "capability")


@nox.session(venv_backend="none", default=False)
def docs(session: nox.Session) -> None:
    """Gate: every command, name and link of the documents exists; examples run."""
    gate_session(session, "docs")


@nox.session(venv_backend="none", default=False)
def security(session: nox.Session) -> None:
    """Gate: no secrets, known licences, no forbidden constructs."""
    gate_session(session, "security")


@nox.session(venv_backend="none", default=False)
def gate(session: nox.Session) -> None:
    """What a pull request gets: the gates of its tier, one report. `-- --base origin/main`."""
    gate_session(session, "gate")


@nox.session(venv_backend="none", default=False)
def gate_selftest(session: nox.Session) -> None:
    """Every gate rejects its seeded bad patches and passes the good ones. `-- NAME ...` for some of them."""
    gate_session(session, "selftest")


@nox.session(venv_backend="none", default=False)
def agents(session: nox.Session) -> None:
    """Agents do the queue of tasks, each in its own clone; what the gates prove lands. `-- --parallel 3`."""
    session.run(str(gates_python(session)), "-m", "tasks", "agents", *session.posargs, external=True)


@nox.session(default=False)
def quickstart(session: nox.Session) -> None:
    """Train, save, reload and sample a small model. `-- --text FILE_OR_DIR` for any text, `-- --short`."""
    install_volta(session)
    session.chdir(session.invoked_from)  # a relative --text is the caller's
    session.run("python", "-m", "volta", "quickstart", *session.posargs)
    where = ("--repository", str(ROOT))
    session.run(
        str(gates_python(session)),
        "-m",
        "tasks",
        "demonstrate",
        *where,
        external=True,
        env={"PYTHONPATH": str(ROOT)},
    )


@nox.session(venv_backend="none", default=False)
def slow(session: nox.Session) -> None:
    """The tests marked slow. Arguments go to pytest."""
    run_pytest(session, "-m", "slow", *(session.posargs or workers()))


@nox.session(venv_backend="none", default=False)
def nightly(session: nox.Session) -> None:
    """Every gate on what the last day brought, the selftest of the gates, the slow tests."""
    failed = []
    base = () if any(one.startswith("--base") for one in session.posargs) else ("--base", a_day_ago())
    try:
        gate_session(session, "slow", *base)
    except CommandFailed:
        failed.append("the gates")
    try:
        ask_gates(session, "selftest")
    except CommandFailed:
        failed.append("the selftest of the gates")
    try:
        run_pytest(session, "-m", "slow", *workers())
    except CommandFailed:
        failed.append("the slow tests")
    if failed:  # all were asked, so that one night shows everything
        session.error(f"failed: {', '.join(failed)}")


@nox.session(venv_backend="none", default=False)
def release(session: nox.Session) -> None:
    """What a release needs: nightly's gates on the commit itself, and nothing left uncommitted."""
    if session.run("git", "status", "--porcelain", silent=True, external=True):
        session.error("the working tree has changes: a release is a commit")
    gate_session(session, "slow", "--head", "HEAD")


@nox.session(venv_backend="none", default=False, name="format")
def apply_format(session: nox.Session) -> None:
    """Apply the formatting that `fmt` checks, and the fixes that ruff calls safe."""
    tools = gates_python(session).parent
    session.run(str(tools / "ruff"), "check", "--fix-only", external=True)
    session.run(str(tools / "ruff"), "format", external=True)
    session.run(str(tools / "clang-format"), "-i", *c_files(), external=True)


@nox.session(venv_backend="none", default=False)
def system(session: nox.Session) -> None:
    """What gates need of the system: compiler, headers, git, valgrind. `-- --install`: by apt, with sudo."""
    tools = [name for name in ("git", "valgrind") if not shutil.which(name)]
    packages = [*missing_for_building(), *tools]
    if not packages:
        session.log("nothing is missing")
    elif "--install" not in session.posargs:
        session.error(to_install(packages))
    else:
        apt = [*([] if os.geteuid() == 0 else ["sudo"]), "apt-get", "--quiet"]
        session.run(*apt, "update", external=True)
        session.run(*apt, "install", "--yes", "--no-install-recommends", *packages, external=True)


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Compile the C kernels, then `volta doctor`: what this machine can run."""
    install_volta(session)
    session.run("python", "-m", "volta", "doctor", *session.posargs)


@nox.session(default=False)
def peers(session: nox.Session) -> None:
    """`volta bench` with PyTorch installed beside it: `-- train --peers torch` (default), `-- gemm`, ..."""
    install_volta(session, extra="[peers,plot]")
    session.run("python", "-m", "volta", "bench", *(session.posargs or ("train", "--peers", "torch")))


# --- what the sessions are made of ----------------------------------------------------------------


def group(name: str) -> "tuple[str, ...]":
    """The requirements of a dependency group."""
    return nox.project.dependency_groups(PROJECT, name)


def workers() -> "list[str]":
    """pytest-xdist's flag: a process for every CPU that this process may use."""
    cpus = len(os.sched_getaffinity(0))
    return ["-n", str(cpus)] if cpus > 1 else []


def c_files() -> "list[str]":
    """All C sources and headers; manifests (*.def) are tables, laid out by hand."""
    places = (C_SOURCES, ROOT / "tests")
    found = sorted(path for place in places for ending in ("*.c", "*.h") for path in place.rglob(ending))
    return [str(path.relative_to(ROOT)) for path in found]


def gate_session(session: nox.Session, name: str, *arguments: str) -> None:
    """Asks gates, with the arguments of the session."""
    ask_gates(session, name, *arguments, *session.posargs)


def ask_gates(session: nox.Session, *arguments: str) -> None:
    """In the one environment that they share."""
    python = gates_python(session)
    session.run(str(python), "-m", "gates", *arguments, external=True)


def a_day_ago() -> str:
    """The last commit of the main line that is older than a day; in a younger repository, HEAD."""
    history = ("rev-list", "-1", "--first-parent", "--before=24.hours", "HEAD")
    failed, output = run(["git", "-C", ROOT, *history])
    return output.strip() if output.strip() and not failed else "HEAD"


def run_pytest(session: nox.Session, *arguments: str) -> None:
    """Some tests on the working tree, its kernels compiled where they have changed."""
    python = gates_python(session)
    session.run(str(python), "-m", "gates", "build", external=True)
    session.run(str(python), "-m", "pytest", *arguments, external=True, env={"PYTHONPATH": "engine"})


def gates_python(session: nox.Session) -> Path:
    """The interpreter of .nox/gates: tools, tests and what the engine needs, but no Volta; a gate puts the
    engine that it judges on the path."""
    missing = missing_for_building()
    if missing:
        session.error(to_install(missing))
    where = ROOT / ".nox" / "gates"
    python = where / "bin" / "python"
    if not succeeds([python, "-c", "import pip"]):
        failed, output = run([sys.executable, "-m", "venv", "--clear", where])
        if failed:
            session.error(f"could not make {where}: {last_line(output)}")
    build_needs = PROJECT["build-system"]["requires"]
    requirements = (*PROJECT["project"]["dependencies"], *build_needs, *group("gates"))
    install_into(session, python, where, *requirements)
    return python


def install_volta(session: nox.Session, *groups: str, extra: str = "") -> None:
    """Volta, editable, with its kernels compiled, and what the dependency groups name."""
    missing = missing_for_building()
    if missing:
        session.error(to_install(missing))
    requirements = [requirement for name in groups for requirement in group(name)]
    install(session, *requirements, "-e", f".{extra}")


def install(session: nox.Session, *arguments: str) -> None:
    install_into(session, Path(session.bin, "python"), Path(session.virtualenv.location), *arguments)


def install_into(session: nox.Session, python: Path, where: Path, *arguments: str) -> None:
    """pip install, but not again where neither the request nor the kernels have changed since."""
    stamp = where / "installed.sha256"
    if stamp.is_file() and stamp.read_text() == fingerprint(arguments):
        return
    stamp.unlink(missing_ok=True)
    session.log(f"pip install {' '.join(arguments)}{' (compiles the kernels)' if '-e' in arguments else ''}")
    failed, output = run([python, "-m", "pip", "install", "--disable-pip-version-check", *arguments])
    if failed:
        problem = pip_problem(output)
        if not problem:
            print(output, file=sys.stderr)
        session.error(problem or "pip install failed: its output is above")
    stamp.write_text(fingerprint(arguments))


def fingerprint(arguments: "Iterable[str]") -> str:
    """sha256 of a request to pip; where it names this project, of what the kernels are made from and
    of the compiled library too, which other environments share and may have made from other sources.
    """
    content = hashlib.sha256(
        json.dumps([*arguments, os.environ.get("CC"), os.environ.get("CFLAGS")]).encode()
    )
    if "-e" in arguments:
        library = [
            ROOT / "engine" / "volta" / f"_native{end}" for end in importlib.machinery.EXTENSION_SUFFIXES
        ]
        for path in (ROOT / "pyproject.toml", ROOT / "setup.py", *sorted(C_SOURCES.rglob("*")), *library):
            if path.is_file():
                content.update(
                    f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode() + path.read_bytes()
                )
    return content.hexdigest()
