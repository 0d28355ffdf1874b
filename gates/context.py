"""What a gate is given: two exact checkouts, what changed between them, a seed, and a place for evidence."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from gates.trees.checkout import Checkout, build
from gates.trees.repository import Change, Repository, Tree

JUDGE = Path(__file__).resolve().parents[1]  # where this code was taken from
TAIL = 40  # lines of a failed command that a record keeps


@dataclass(frozen=True, slots=True)
class Done:
    """A finished command: its exit code and what it printed."""

    argv: Sequence[str]
    code: int
    output: str
    seconds: float

    def tail(self, lines: int = TAIL) -> str:
        return "\n".join(self.output.strip().splitlines()[-lines:])


@dataclass(frozen=True)
class Context:
    """base, head: checkouts. evidence: a directory of this gate's own. deadline: of time.monotonic()."""

    repository: Repository
    base: Checkout
    head: Checkout
    seed: int
    evidence: Path
    deadline: float
    alone: bool = False  # the gate was asked for by name: judge it even where nothing relevant changed
    commands: list[Sequence[str]] = field(default_factory=list)

    @cached_property
    def changes(self) -> list[Change]:
        return self.repository.changes(self.base.tree, self.head.tree)

    def touches(self, *places: str) -> bool:
        """Whether any changed path is one of these or lies below one (`engine/csrc/`)."""
        return any(
            path == place or (place.endswith("/") and path.startswith(place))
            for change in self.changes
            for path in change.paths
            for place in places
        )

    @property
    def left_s(self) -> float:
        return max(1.0, self.deadline - time.monotonic())

    def build(self, which: Checkout) -> Path:
        return build(self.repository, which)

    def environment(self, engine: Checkout, **more: str) -> dict[str, str]:
        """Of a process that uses a checkout's engine: nothing of the user's settings for Volta, no writing
        of bytecode into the checkout, a cache of its own."""
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("VOLTA_", "PYTHON", "PYTEST_", "GIT_", "COV_"))
        }
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join((str(engine.path / "engine"), str(engine.path))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "VOLTA_CACHE": str(self.evidence / "cache"),
            **more,
        }

    def run(
        self,
        argv: Iterable[str | Path],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
    ) -> Done:
        """Runs a command to its end, at most to the gate's deadline; what it prints goes to the log too."""
        command = [str(part) for part in argv]
        self.commands.append(command)
        begin = time.monotonic()
        log(f"$ {' '.join(command)}\n")
        try:
            code, output = streamed(command, cwd or self.head.path, env, stdin or "", self.left_s)
        except FileNotFoundError:
            code, output = 127, f"{command[0]}: no such command\n"
            log(output)
        log(f"{'' if output.endswith(chr(10)) or not output else chr(10)}exit code {code}\n")
        return Done(command, code, output, time.monotonic() - begin)

    def worker(self, module: str, engine: Checkout, request: str, **env: str) -> Done:
        """A module of the judge in a process with an engine that it does not trust: `gates` is the judge's,
        not what the engine's checkout has under that name."""
        environment = self.environment(engine, **env)
        environment["PYTHONPATH"] = os.pathsep.join((str(engine.path / "engine"), str(JUDGE)))
        return self.run((sys.executable, "-P", "-m", module), self.evidence, environment, request)

    def python(self, *arguments: str | Path, engine: Checkout, cwd: Path | None = None, **env: str) -> Done:
        """A Python process with a checkout's engine on its path."""
        return self.run(
            (sys.executable, *arguments), cwd=cwd or engine.path, env=self.environment(engine, **env)
        )

    # --- from the judge to the process that runs the gate ---------------------------------------------

    def to_json(self, limit_s: float) -> str:
        return json.dumps(
            {
                "root": str(self.repository.root),
                "base": [asdict(self.base.tree), str(self.base.path)],
                "head": [asdict(self.head.tree), str(self.head.path)],
                "seed": self.seed,
                "evidence": str(self.evidence),
                "limit_s": limit_s,
                "alone": self.alone,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Context:
        given = json.loads(text)
        (base, base_path), (head, head_path) = given["base"], given["head"]
        return cls(
            Repository(Path(given["root"])),
            Checkout(Tree(**base), Path(base_path)),
            Checkout(Tree(**head), Path(head_path)),
            given["seed"],
            Path(given["evidence"]),
            time.monotonic() + given["limit_s"],
            given["alone"],
        )


def streamed(
    command: Sequence[str], cwd: Path, env: Mapping[str, str] | None, stdin: str, limit_s: float
) -> tuple[int, str]:
    """A command's exit code and output, which goes to the log as it comes. Raises TimeoutExpired."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=None if env is None else dict(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        bufsize=1,
    )
    late = threading.Event()

    def give_up() -> None:
        late.set()
        process.kill()

    def feed() -> None:
        with contextlib.suppress(BrokenPipeError):  # it did not want to hear the rest
            process.stdin.write(stdin)  # type: ignore[union-attr]  # a pipe was asked for
            process.stdin.close()  # type: ignore[union-attr]

    timer, feeder = threading.Timer(limit_s, give_up), threading.Thread(target=feed, daemon=True)
    timer.start()
    feeder.start()
    parts = []
    try:
        for line in process.stdout or ():
            parts.append(line)
            log(line)
        process.wait()
    finally:
        timer.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
    if late.is_set():
        raise subprocess.TimeoutExpired(command, limit_s, "".join(parts))
    return process.returncode, "".join(parts)


def log(text: str) -> None:
    """To the gate's log: its process's standard error."""
    sys.stderr.write(text)
    sys.stderr.flush()
