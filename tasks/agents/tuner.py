"""An agent without a language model: finds how this processor is best to cut up the products that a task
names, and leaves the table that ships them.

`python -m tasks.agents.tuner`, in a clone of the repository, the prompt on standard input. Lines of the
task's `why` name the products; each must be, but for space around it,

    tune: MxNxK[, MxNxK ..] [f32|bf16|int8]

where C is [M, N] and the sum over K; without a dtype f32. The first allowed path that ends in `tables/` gets
the file, by its processor's name, or one that names a `.json` below a `tables/`. The clone's own engine
searches, with kernels compiled there and a cache of its own. Only what is surely faster than the default
becomes an entry; entries that the file has stay, but for those found anew. Where nothing is faster no file
changes.

Standard output: a line for each product, at last {"tuned": n, "kept_default": n, "gain": {key: ratio}}. Exit
code 2: the task does not say what to do; 1: the kernels do not compile, or the engine says no.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gates.errors import GateError
from gates.trees.checkout import HOME, build_in_place, home, sources_hash
from gates.trees.repository import Repository

from tasks.errors import TaskError

GRAMMAR = "tune: MxNxK[, MxNxK ..] [f32|bf16|int8]"
SIZES = "[1-9][0-9]{0,6}(?:x[1-9][0-9]{0,6}){2}"
LINE = re.compile(rf"tune: (?P<sizes>{SIZES}(?:, {SIZES})*)(?: (?P<dtype>f32|bf16|int8))?", re.ASCII)
PLACE = re.compile(r"(?:.*/)?tables/(?:[^/*]+\.json)?")
ALLOWED, END = "## What you may change", "A change of any other path"  # as tasks.agents.prompt writes them
RUNS = 15  # samples of the best and of the default, pair by pair: 0.1 s of each product
ALTERNATES = ".git/objects/info/alternates"  # of a clone: the repository whose objects it shares
# Runs with the clone's engine. Arguments: where the table may lie, and the keys that go there. Without keys
# nothing is written, only found out whether the file that is there could be added to.
EXPORT = """
import sys
from pathlib import Path
from volta.errors import VoltaError
from volta.runtime import gateway
place, *keys = sys.argv[1:]
path = Path(place) if place.endswith(".json") else Path(place, gateway.tuned_path().name)
try:
    gateway.export_tuned(path, keys)
except VoltaError as error:
    sys.exit(f"volta: {error}")
print(path)
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """products: MxNxK by dtype, in the order asked for. place: from the repository's root."""

    products: Mapping[str, Sequence[str]]
    place: str


def wanted(prompt: str) -> Wanted:
    """What the task asks for. Only its own text counts, not the rules or earlier findings below it. Raises
    TaskError."""
    why, _, rest = prompt.partition(f"\n{ALLOWED}\n")
    products: dict[str, list[str]] = {}
    for line in map(str.strip, why.splitlines()):
        if not line.startswith("tune:"):
            continue
        if (match := LINE.fullmatch(line)) is None:
            raise TaskError(f"[tuner] {line!r} names no products: expected `{GRAMMAR}`")
        known = products.setdefault(match["dtype"] or "f32", [])
        known += [one for one in dict.fromkeys(match["sizes"].split(", ")) if one not in known]
    if not products:
        raise TaskError(f"[tuner] the task names no products: expected lines `{GRAMMAR}` in its why")
    allowed = re.findall(r"^- `(.+)`$", rest.partition(f"\n{END}")[0], re.MULTILINE)
    places = [path for path in allowed if PLACE.fullmatch(path)]
    if not places:
        given = ", ".join(allowed) or "nothing"
        raise TaskError(
            f"[tuner] {given} may be changed: expected a path that ends in tables/, or a .json below"
        )
    return Wanted(products, places[0])


class Engine:
    """The clone's own, with a cache that nobody else sees."""

    def __init__(self, root: Path, cache: Path) -> None:
        self._root = root
        self._env = {**os.environ, "PYTHONPATH": str(root / "engine"), "VOLTA_CACHE": str(cache)}

    def run(self, *arguments: str) -> str:
        """What Python prints on standard output; standard error passes through. Raises TaskError."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self._root,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise TaskError(f"[tuner] the engine ended with exit code {done.returncode}")
        return done.stdout

    def search(self, dtype: str, shapes: Sequence[str]) -> dict[str, Any]:
        """What `volta tune` finds: its JSON."""
        options = ("--shapes", ",".join(shapes), "--dtype", dtype, "--runs", str(RUNS), "--json")
        found: dict[str, Any] = json.loads(self.run("-m", "volta", "tune", "matmul", *options))
        return found

    def export(self, place: Path, keys: Sequence[str]) -> str:
        return self.run("-c", EXPORT, str(place), *keys).strip()


def compile_kernels(root: Path) -> None:
    """In the clone, below paths that git ignores; what the gates compiled of the same sources, in the
    repository that the clone is of, is taken from there."""
    repository = Repository(root)
    kept = Path("builds", f"{sources_hash(root)}.so")
    alternates = root / ALTERNATES
    for objects in alternates.read_text().splitlines() if alternates.is_file() else ():
        theirs, own = Path(objects).parents[1] / HOME / kept, home(repository) / kept
        if theirs.is_file() and not own.is_file():
            own.parent.mkdir(exist_ok=True)
            shutil.copyfile(theirs, own)
    build_in_place(repository, root)


def work(asked: Wanted, root: Path) -> None:
    """Raises TaskError, GateError."""
    if not (root / "engine" / "volta").is_dir():
        raise TaskError(f"[tuner] {root} has no engine/volta: expected to be started in a clone of Volta")
    compile_kernels(root)
    gain: dict[str, float] = {}
    kept_default = 0
    with tempfile.TemporaryDirectory(prefix="volta-tuner-") as cache:
        engine = Engine(root, Path(cache))
        engine.export(root / asked.place, [])
        for dtype, shapes in asked.products.items():
            found = engine.search(dtype, shapes)
            for one in found["products"]:
                times, timed = one["default_over_best"]["median"], f"{one['key']}: {one['timed']} tried"
                if one["blocks"] is None:
                    kept_default += 1
                    say(f"{timed}, the default is kept: the best is {times:.3f} times as fast")
                else:
                    gain[one["key"]] = round(times, 4)
                    say(f"{timed}, the best is {times:.3f} times as fast as the default")
            for key in found["skipped"]:
                say(f"{key}: skipped, it cannot be run alone")
        if gain:
            say(f"written to {engine.export(root / asked.place, list(gain))}")
        else:
            say("nothing is surely faster than the default: no file is changed")
    say(json.dumps({"tuned": len(gain), "kept_default": kept_default, "gain": gain}))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    try:
        asked = wanted(sys.stdin.read())
    except TaskError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    try:
        work(asked, Path.cwd())
    except (TaskError, GateError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
