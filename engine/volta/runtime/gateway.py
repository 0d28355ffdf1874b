"""The one path from a graph to running code: verify, passes, verify, plan, verify, compile, run.

The plan that was verified is the plan that runs. Only this module imports backends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from volta import passes
from volta.backends.base import Array, Backend, Program
from volta.backends.cpu import native, tuned
from volta.backends.cpu.backend import CpuBackend
from volta.backends.cpu.tuned import Blocks as Blocks  # what the tuner passes
from volta.backends.cpu.tuned import Tables as Tables
from volta.dtypes import aligned, aligned_copy
from volta.errors import DeviceError, IndexRangeError, NotFiniteError, UsageError
from volta.ir.graph import Attrs, Graph, GraphBuilder, Node, TensorType
from volta.ir.ops import work_of
from volta.plan import build, fingerprint, verify
from volta.plan.cache import PlanCache
from volta.plan.steps import Memory, Plan, Step
from volta.runtime.policy import Policy, current

Result = TypeVar("Result")


class Executable:
    """A verified plan and its program. Runs of one executable are serialised: it has one arena."""

    def __init__(self, plan: Plan, program: Program, signature: str) -> None:
        self.plan = plan
        self.signature = signature
        self.program = program
        self.input_types = tuple(node.type for node in plan.graph.inputs)
        self.output_types = tuple(node.type for node in plan.graph.outputs)
        self._bound_buffers = [
            b.index for b in plan.buffers if not b.in_arena and b.memory is not Memory.CONSTANT
        ]
        self._lock = Lock()

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """One run on these arrays; gives the outputs, freshly allocated except where an input was donated."""
        session = self.bind(inputs)
        session.run()
        return session.outputs

    def bind(self, inputs: Sequence[Array]) -> Session:
        """Binds memory once for many runs."""
        return Session(self, inputs)

    def buffers(self, inputs: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """The caller's buffers in binding order, and the output arrays among them."""
        if len(inputs) != len(self.input_types):
            raise UsageError(f"[run] {len(inputs)} inputs were given: expected {len(self.input_types)}")
        arrays: dict[int, Array] = {}
        for node, number, array in zip(self.plan.graph.inputs, self.plan.inputs, inputs, strict=True):
            if array.shape != node.shape or array.dtype != node.dtype.numpy:
                raise UsageError(
                    f"[run] input {node.attrs['name']} is {array.dtype}{list(array.shape)}: "
                    f"expected {node.type}"
                )
            arrays[number] = array if array.flags.c_contiguous else aligned_copy(array)
        outputs = []
        for kind, number in zip(self.output_types, self.plan.outputs, strict=True):
            if number not in arrays:
                arrays[number] = aligned(kind.shape, kind.dtype.numpy)
            outputs.append(arrays[number])
        for buffer in self.plan.buffers:
            if buffer.memory is Memory.PERSISTENT:
                arrays[buffer.index] = aligned((buffer.nbytes,), np.uint8)
        return [arrays[number] for number in self._bound_buffers], outputs

    def overwritten(self, step: int) -> set[int]:
        """The inputs that a run which stopped at `step` may have written over."""
        steps = self.plan.steps
        end = next((i for i in range(step + 1, len(steps)) if steps[i].barrier), len(steps))
        written = {view.buffer for each in steps[:end] for view in each.writes()}
        return {i for i, number in enumerate(self.plan.inputs) if number in written}

    @property
    def nbytes(self) -> int:
        """What it holds while it lives: the arena and the literals."""
        return self.plan.arena_bytes + self.plan.bytes_by_memory()[Memory.CONSTANT]

    def explain(self, error: IndexRangeError | NotFiniteError) -> Exception:
        """The failure in the model's terms: which operation, which tensor."""
        if not 0 <= error.step < len(self.plan.steps):
            return error
        node = self.plan.steps[error.step].node
        value, limit = error.detail
        if isinstance(error, NotFiniteError) and node.op == "check_finite":
            names = node.attrs["names"]
            name = names[value] if isinstance(names, tuple) and value < len(names) else f"element {value}"
            return NotFiniteError(f"[check_finite] {name} is NaN or infinite", error.step, error.detail)
        if isinstance(error, NotFiniteError):  # value is the flat index of an element of operand 0
            row = value // node.inputs[0].shape[-1]
            return NotFiniteError(f"[{node.op}] row {row} is NaN or infinite", error.step, error.detail)
        return IndexRangeError(
            f"[{node.op}] index is {value}: expected 0 to {limit - 1}", error.step, error.detail
        )


class Session:
    """An executable with bound memory: write into `inputs`, call `run`, read `outputs`.

    Donated inputs and their outputs are the same arrays.
    """

    def __init__(self, executable: Executable, inputs: Sequence[Array]) -> None:
        self._executable = executable
        buffers, self.outputs = executable.buffers(inputs)
        self._bound = self._call(lambda: executable.program.bind(buffers))
        self.inputs = [buffers[executable._bound_buffers.index(number)] for number in executable.plan.inputs]

    def run(self) -> None:
        """One call into the backend."""
        self._call(self._bound.run)

    def refresh(self) -> None:
        """Computes again what depends on persistent inputs alone, after they were written."""
        self._call(self._bound.refresh)

    def run_traced(self) -> npt.NDArray[np.float64]:
        """The same; when each thread began and ended each step, [threads, steps, 2], in seconds."""
        return self._call(self._bound.run_traced)

    def _call(self, run: Callable[[], Result]) -> Result:
        try:
            with self._executable._lock:
                return run()
        except (IndexRangeError, NotFiniteError) as error:
            raise self._executable.explain(error) from None


SMALL_WORK = 1 << 24  # operations and bytes: about a millisecond of one thread

CACHE_BYTES = 256 << 20  # arenas and literals that the caches may keep alive, each

_cache: PlanCache[Executable] = PlanCache(512, CACHE_BYTES, lambda executable: executable.nbytes)
_op_cache: PlanCache[Executable] = PlanCache(2048, CACHE_BYTES, lambda executable: executable.nbytes)


def compile(
    graph: Graph, policy: Policy | None = None, persistent: frozenset[int] = frozenset()
) -> Executable:
    """The executable for a graph under a policy (the current one by default), from the cache or made.

    persistent: positions of inputs that stay as they are once bound (Session.refresh tells of changes).
    """
    policy = policy or current()
    backend = resolve(policy)
    key = fingerprint.fingerprint(graph, f"persistent {sorted(persistent)}", *_flags(policy, backend))
    return _cache.get_or_make(key, lambda: _compile(graph, policy, backend, persistent))


def compile_op(op: str, types: tuple[TensorType, ...], attrs: Attrs) -> Executable:
    """The executable of one operation: the path of every eager call."""
    policy = current()
    backend = resolve(policy)
    key = (op, types, tuple((name, repr(attrs[name])) for name in sorted(attrs)), _flags(policy, backend))
    return _op_cache.get_or_make(key, lambda: _compile(_single(op, types, attrs), policy, backend))


def plan(graph: Graph, policy: Policy | None = None) -> Plan:
    """The verified plan alone, with each pass's effect; nothing is allocated."""
    policy = policy or current()
    return _plan(graph, policy, _sized(graph, policy, resolve(policy)))


def resolve(policy: Policy) -> Backend:
    """The backend a policy asks for. A pinned device or instruction set that is not there is an error."""
    if policy.device in ("opencl", "cuda"):
        raise DeviceError(f"[runtime] device is {policy.device!r}: this version has cpu only")
    return _cpu(policy.isa, policy.threads or native.default_threads())


def cpu_info() -> native.CpuInfo:
    """What the processor offers; DeviceError where the kernels are not built."""
    return native.cpu_info()


def probe(kind: str, isa: str, threads: int, nbytes: int = 0, seconds: float = 0.02) -> float | None:
    """A ceiling of this machine, per second: see native.probe."""
    return native.probe(kind, isa, threads, nbytes, seconds)


def cache_statistics() -> dict[str, int]:
    """Hits, misses and entries of the plan cache (graphs and single operations together)."""
    return {
        "hits": _cache.hits + _op_cache.hits,
        "misses": _cache.misses + _op_cache.misses,
        "entries": len(_cache) + len(_op_cache),
    }


def clear_caches() -> None:
    """Forgets every compiled plan."""
    _cache.clear()
    _op_cache.clear()


def _cpu(isa: str, threads: int) -> Backend:
    return _cpu_with(isa, threads, tuned.current().digest)


@lru_cache(maxsize=64)
def _cpu_with(isa: str, threads: int, digest: str) -> Backend:
    """digest: of the tuned table, so that a new one makes new backends."""
    return CpuBackend(isa, threads)


# --- tuning ----------------------------------------------------------------------------------------


def register_tiles(kind: str, isa: str) -> tuple[native.Tile, ...]:
    """The tiles that a matmul of this kind (f32, bf16, i8) may use, the default first."""
    return native.tiles_of(kind, isa)


def matmul_keys(plan: Plan, isa: str, threads: int) -> dict[str, Step]:
    """The plan's matmuls that blocks can be chosen for, one step for each key."""
    found: dict[str, Step] = {}
    for step in plan.steps:
        key = tuned.key_of(step, isa, threads)
        if key is not None and (len(step.ints) < 7 or step.ints[6] & 3 != 3):
            found.setdefault(key, step)
    return found


def tuned_table() -> tuned.Table:
    """What was tuned for this processor, by the user or by who made the package."""
    return tuned.current()


def tuned_tables() -> tuned.Tables:
    """The same, with where each entry comes from."""
    return tuned.tables()


def tuned_path() -> Path:
    """The user's file; a table that ships has the same name."""
    return tuned.path_of_table()


def keep_tuned(entries: Mapping[str, Blocks]) -> Path:
    """Adds blocks to the user's table; plans made from now on use them."""
    return tuned.add(entries)


def clear_tuned() -> Path:
    """Removes the user's table."""
    return tuned.clear()


def export_tuned(path: Path, keys: Collection[str]) -> int:
    """Puts some entries of the user's table into one that is to ship; gives how many that has then."""
    return tuned.export(path, keys)


def compile_tuned(graph: Graph, isa: str, threads: int, blocks: Mapping[str, Blocks]) -> Executable:
    """The executable of a graph under these very blocks, kept nowhere: what a search tries."""
    policy = Policy(threads=threads, isa=isa)
    backend = CpuBackend(isa, threads, tuned.Table(blocks))
    plan = _plan(graph, policy, backend)
    return Executable(plan, backend.compile(plan), backend.target.signature)


def _flags(policy: Policy, backend: Backend) -> tuple[str, ...]:
    names = passes.PASSES if policy.passes is None else policy.passes
    return (
        backend.target.signature,
        policy.determinism,
        f"threads {policy.threads}",
        f"max {policy.max_bytes}",
        "passes " + ",".join(names),
    )


def _compile(
    graph: Graph, policy: Policy, backend: Backend, persistent: frozenset[int] = frozenset()
) -> Executable:
    backend = _sized(graph, policy, backend)
    plan = _plan(graph, policy, backend, persistent)
    return Executable(plan, backend.compile(plan), backend.target.signature)


def _sized(graph: Graph, policy: Policy, backend: Backend) -> Backend:
    """Where the number of threads is left to Volta, a small program gets one: meeting at its barriers would
    take longer than its work (a decode step of TinyLM: 0.2 ms on one thread, up to 0.9 ms on two of a busy
    machine). The bits are the same."""
    if policy.threads or _work(graph) >= SMALL_WORK:
        return backend
    return _cpu(policy.isa, 1)


def _work(graph: Graph) -> int:
    """Operations and bytes of all nodes: a rough measure of time."""
    return sum(work.flops + work.bytes for work in map(work_of, graph.nodes))


def _plan(graph: Graph, policy: Policy, backend: Backend, persistent: frozenset[int] = frozenset()) -> Plan:
    effects: list[tuple[str, int, int]] = []
    final = passes.run(graph, policy.passes, lambda name, a, b: effects.append((name, len(a), len(b))))
    made = build.build(
        final,
        backend.target,
        flags=_flags(policy, backend),
        max_bytes=policy.max_bytes,
        passes=tuple(effects),
        persistent=persistent,
    )
    verify.verify(made)
    return made


def _single(op: str, types: tuple[TensorType, ...], attrs: Attrs) -> Graph:
    builder = GraphBuilder()
    inputs: list[Node] = [builder.input(f"x{i}", kind.shape, kind.dtype) for i, kind in enumerate(types)]
    return builder.freeze(builder.results(op, inputs, attrs))


__all__ = [
    "Executable",
    "Session",
    "cache_statistics",
    "clear_caches",
    "compile",
    "compile_op",
    "cpu_info",
    "plan",
    "probe",
    "resolve",
]
