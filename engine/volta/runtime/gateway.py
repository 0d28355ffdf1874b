"""The one path from a graph to running code: verify, passes, verify, plan, verify, compile, run.

The plan that was verified is the plan that runs. Only this module imports backends.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from threading import Lock

from volta import passes
from volta.backends.base import Array, Backend, Program
from volta.backends.cpu import native
from volta.backends.cpu.backend import CpuBackend
from volta.dtypes import aligned, aligned_copy
from volta.errors import DeviceError, IndexRangeError, NotFiniteError, UsageError
from volta.ir.graph import Attrs, Graph, GraphBuilder, Node, TensorType
from volta.ir.ops import OPS
from volta.plan import build, fingerprint, verify
from volta.plan.cache import PlanCache
from volta.plan.steps import Memory, Plan
from volta.runtime.policy import Policy, current


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
        self._bound = executable.program.bind(buffers)
        self.inputs = [buffers[executable._bound_buffers.index(number)] for number in executable.plan.inputs]

    def run(self) -> None:
        """One call into the backend."""
        try:
            with self._executable._lock:
                self._bound.run()
        except (IndexRangeError, NotFiniteError) as error:
            raise self._executable.explain(error) from None


SMALL_WORK = 1 << 24  # operations and bytes: about a millisecond of one thread

CACHE_BYTES = 256 << 20  # arenas and literals that the caches may keep alive, each

_cache: PlanCache[Executable] = PlanCache(512, CACHE_BYTES, lambda executable: executable.nbytes)
_op_cache: PlanCache[Executable] = PlanCache(2048, CACHE_BYTES, lambda executable: executable.nbytes)


def compile(graph: Graph, policy: Policy | None = None) -> Executable:
    """The executable for a graph under a policy (the current one by default), from the cache or made."""
    policy = policy or current()
    backend = resolve(policy)
    key = fingerprint.fingerprint(graph, *_flags(policy, backend))
    return _cache.get_or_make(key, lambda: _compile(graph, policy, backend))


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
    if policy.isa == "amx":
        raise DeviceError("[runtime] isa is 'amx': this version has ref, avx2, avx512")
    return _cpu(policy.isa, policy.threads or native.default_threads())


def cpu_info() -> native.CpuInfo:
    """What the processor offers; DeviceError where the kernels are not built."""
    return native.cpu_info()


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


@lru_cache(maxsize=64)
def _cpu(isa: str, threads: int) -> Backend:
    return CpuBackend(isa, threads)


def _flags(policy: Policy, backend: Backend) -> tuple[str, ...]:
    names = passes.PASSES if policy.passes is None else policy.passes
    return (
        backend.target.signature,
        policy.determinism,
        f"threads {policy.threads}",
        f"max {policy.max_bytes}",
        "passes " + ",".join(names),
    )


def _compile(graph: Graph, policy: Policy, backend: Backend) -> Executable:
    backend = _sized(graph, policy, backend)
    plan = _plan(graph, policy, backend)
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
    return sum(
        sum(
            OPS[node.op].cost(
                tuple(kind for source in node.inputs for kind in source.types), node.types, node.attrs
            )
        )
        for node in graph.nodes
        if node.op != "result"
    )


def _plan(graph: Graph, policy: Policy, backend: Backend) -> Plan:
    effects: list[tuple[str, int, int]] = []
    final = passes.run(graph, policy.passes, lambda name, a, b: effects.append((name, len(a), len(b))))
    made = build.build(
        final,
        backend.target,
        flags=_flags(policy, backend),
        max_bytes=policy.max_bytes,
        passes=tuple(effects),
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
    "resolve",
]
