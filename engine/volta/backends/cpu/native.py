"""The typed seam over volta._native: the only module that touches C.

Names instead of numbers, one Python exception per status, and the life of a C program bound to
the life of a Python object.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from volta.dtypes import BY_NAME, DType, aligned
from volta.errors import DeviceError, IndexRangeError, NotFiniteError, UsageError, VerifyError, VoltaError

Array = npt.NDArray[Any]

ABI_VERSION = 2
ISAS = ("ref", "avx2", "avx512", "amx")
_BY_NUMPY = {np.dtype(dtype.numpy): dtype for dtype in BY_NAME.values()}
_BAD_PROGRAM, _INDEX_RANGE, _NOT_FINITE, _NO_MEMORY, _NO_THREAD = 1, 2, 3, 4, 5


# --- what a program is made of ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Operand:
    """A strided view: `buffer` 0 is the arena; `offset` in bytes, `strides` in elements."""

    buffer: int
    dtype: DType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Instruction:
    """register[to] = op(register[inputs...]); registers are the operands, then the temporaries."""

    op: str
    to: int
    inputs: tuple[int, ...]
    imm: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel call; operands are the outputs, then the inputs. See csrc/kernels.def."""

    kernel: str
    operands: tuple[Operand, ...]
    n_outputs: int
    ints: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()
    code: tuple[Instruction, ...] = ()
    workspace: int = 0
    barrier: bool = True

    @property
    def n_temporaries(self) -> int:
        highest = max((max(i.to, *i.inputs) for i in self.code), default=-1)
        return max(0, highest + 1 - len(self.operands))


# --- loading ---------------------------------------------------------------------------------------


@cache
def library() -> tuple[Any, Any]:
    """The compiled module's (ffi, lib)."""
    try:
        module = importlib.import_module("volta._native")
    except ImportError as error:
        raise DeviceError(
            f"[native] volta._native is not built ({error}): run `pip install -e .` in the project's root"
        ) from error
    if module.lib.VOLTA_ABI_VERSION != ABI_VERSION:
        raise DeviceError(
            f"[native] volta._native has ABI {module.lib.VOLTA_ABI_VERSION}, this Python code needs "
            f"{ABI_VERSION}: run `pip install -e .` again"
        )
    return module.ffi, module.lib


def _names(read: str) -> dict[str, int]:
    ffi, lib = library()
    numbers: dict[str, int] = {}
    while (name := getattr(lib, read)(len(numbers))) != ffi.NULL:
        numbers[ffi.string(name).decode()] = len(numbers)
    return numbers


@cache
def kernels() -> dict[str, int]:
    """Every kernel of csrc/kernels.def by name."""
    return _names("volta_kernel_name")


@cache
def chain_ops() -> dict[str, int]:
    """Every elementwise operation of csrc/chain_ops.def by name."""
    return _names("volta_op_name")


# --- register tiles of matmul ----------------------------------------------------------------------


FEATURES = {1: "bf16 dot", 2: "vnni", 3: "amx", 4: "512 bits in halves"}  # VOLTA_NEEDS_..
KINDS = ("f32", "bf16", "i8")  # what a tile's A holds: VOLTA_CODE_F32, ...


@dataclass(frozen=True, slots=True)
class Tile:
    """A row of csrc/cpu/matmul_tiles.def: mr x nr of C in registers, and the blocks of its cache levels."""

    id: int
    code: str
    kind: str
    isa: str
    available: bool
    mr: int
    nr: int
    kc: int
    mc: int
    nc: int
    ahead: int

    @property
    def name(self) -> str:
        """dtype_matmul_tile_isa, as in the manifest of kernels."""
        dtype, _, isa = self.code.partition("_")
        return f"{dtype}_matmul_{self.mr}x{self.nr}_{isa}"


@cache
def tiles() -> tuple[Tile, ...]:
    """Every register tile, whether this processor has it or not."""
    ffi, lib = library()
    facts = ffi.new("volta_tile_facts *")
    found: list[Tile] = []
    while lib.volta_tile_row(len(found) + 1, facts):
        found.append(
            Tile(
                len(found) + 1,
                ffi.string(facts.code).decode(),
                KINDS[facts.kind],
                ISAS[facts.isa],
                bool(facts.available),
                facts.mr,
                facts.nr,
                facts.kc,
                facts.mc,
                facts.nc,
                facts.ahead,
            )
        )
    return tuple(found)


def tiles_of(kind: str, isa: str) -> tuple[Tile, ...]:
    """The tiles that a step of this kind may use under an instruction set, the table's choice first."""
    under = (isa, "avx512") if isa == "amx" else (isa,)
    return tuple(tile for tile in tiles() if tile.kind == kind and tile.isa in under and tile.available)


def tile_problem(tile: int) -> str | None:
    """The constraint of the table that a row breaks, if any."""
    ffi, lib = library()
    problem = lib.volta_tile_problem(tile)
    return None if problem == ffi.NULL else ffi.string(problem).decode()


def packed_bytes(tile: int, kind: str, isa: str, k: int, n: int, group: int = 1) -> int:
    """Bytes of w [k, n] in the order that a tile reads it; a UsageError where there is no such tile."""
    _, lib = library()
    count = int(lib.volta_packed_bytes(tile, KINDS.index(kind), isa_code(isa), k, n, group))
    if count < 0:
        raise UsageError(f"[pack] tile {tile} for {kind} under {isa} does not exist here")
    return count


# --- the processor ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CpuInfo:
    model: str
    isas: tuple[str, ...]
    features: tuple[str, ...]  # what matmul codes use beyond them
    cpus: int
    cache_bytes: tuple[int, int, int]


def _model_name() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return "unknown"


def cpu_info() -> CpuInfo:
    """Model, usable instruction sets from the plainest up, features, usable CPUs, bytes of L1d, L2 and L3."""
    _, lib = library()
    isas = tuple(name for code, name in enumerate(ISAS) if lib.volta_cpu_isa_supported(code))
    features = tuple(name for code, name in FEATURES.items() if lib.volta_cpu_has(code))
    first, second, third = (int(lib.volta_cpu_cache_bytes(level)) for level in (1, 2, 3))
    return CpuInfo(_model_name(), isas, features, default_threads(), (first, second, third))


def default_threads() -> int:
    """The CPUs this process may use: affinity mask and cgroup quota."""
    _, lib = library()
    return min(int(lib.volta_cpus_available()), int(lib.VOLTA_MAX_THREADS))


def best_isa() -> str:
    return cpu_info().isas[-1]


def isa_code(isa: str) -> int:
    _, lib = library()
    if isa not in ISAS:
        raise UsageError(f"[native] isa is {isa!r}: expected one of {', '.join(ISAS)}")
    code = ISAS.index(isa)
    if not lib.volta_cpu_isa_supported(code):
        raise DeviceError(f"[native] isa is {isa!r}: this processor supports {', '.join(cpu_info().isas)}")
    return code


# --- ceilings ------------------------------------------------------------------------------------------

PROBES = ("fma", "add", "divide", "sqrt", "bf16", "i8", "read", "write", "copy", "barrier")  # csrc/probe.h


def probe(
    kind: str, isa: str, threads: int, nbytes: int = 0, seconds: float = 0.02, rounds: int = 5
) -> float | None:
    """The most that `threads` threads together do in a second: operations (a fused multiply-add counts two),
    bytes of a walk over `nbytes` of memory each, or meetings at a barrier. None where this processor has no
    such instruction. The best of some rounds of about `seconds`: a ceiling, not a typical speed."""
    ffi, lib = library()
    code, number = isa_code(isa), PROBES.index(kind)
    work = int(lib.volta_probe_work(number, code, nbytes))
    if work == 0:
        return None
    memory = aligned((threads * nbytes,), np.uint8)
    memory[...] = 1
    pointer, took = ffi.cast("void *", address_of(memory)), ffi.new("double *")
    repeats, best = 1, 0.0
    for _ in range(rounds + 40):
        if lib.volta_probe_run(number, code, threads, pointer, nbytes, repeats, took) != 0:
            raise DeviceError(f"[probe] {threads} threads could not run {kind} under {isa}")
        if took[0] < seconds:
            repeats *= 2
            continue
        best = max(best, work * repeats * (1 if kind == "barrier" else threads) / took[0])
        rounds -= 1
        if rounds == 0:
            break
    return best


# --- programs --------------------------------------------------------------------------------------


def _lookup(table: dict[str, int], name: str, what: str) -> int:
    if name not in table:
        raise VerifyError("native", f"{what} {name!r} does not exist: expected one of {', '.join(table)}")
    return table[name]


def _fill_operand(target: Any, operand: Operand) -> None:
    rank = len(operand.shape)
    if rank > 6 or rank != len(operand.strides):
        raise VerifyError("native", f"an operand has shape {operand.shape} and strides {operand.strides}")
    target.buffer = operand.buffer
    target.dtype = operand.dtype.code
    target.rank = rank
    target.offset = operand.offset
    for axis, (size, stride) in enumerate(zip(operand.shape, operand.strides, strict=True)):
        target.shape[axis] = size
        target.stride[axis] = stride


def _fill_instruction(target: Any, instruction: Instruction) -> None:
    if len(instruction.inputs) > 6 or len(instruction.imm) > 4:
        raise VerifyError("native", f"{instruction} has more than 6 inputs or 4 immediate values")
    target.op = _lookup(chain_ops(), instruction.op, "elementwise operation")
    target.to = instruction.to
    sources = getattr(target, "from")  # a keyword in Python
    for slot, register in enumerate(instruction.inputs):
        sources[slot] = register
    for slot, value in enumerate(instruction.imm):
        target.imm[slot] = value


class _Tables:
    """Steps as the three flat arrays of the ABI."""

    def __init__(self, steps: Sequence[Step]) -> None:
        ffi, _ = library()
        self.n_steps = len(steps)
        self.n_operands = sum(len(step.operands) for step in steps)
        self.n_instructions = sum(len(step.code) for step in steps)
        self.steps = ffi.new("volta_step[]", max(1, self.n_steps))
        self.operands = ffi.new("volta_operand[]", max(1, self.n_operands))
        self.instructions = ffi.new("volta_instruction[]", max(1, self.n_instructions))
        first_operand = first_instruction = 0
        for index, step in enumerate(steps):
            if len(step.ints) > 8 or len(step.floats) > 8:
                raise VerifyError("native", f"step {index} {step.kernel} has more than 8 ints or floats")
            record = self.steps[index]
            record.kernel = _lookup(kernels(), step.kernel, "kernel")
            record.barrier = int(step.barrier)
            record.first_operand, record.n_operands = first_operand, len(step.operands)
            record.n_outputs = step.n_outputs
            record.first_instruction, record.n_instructions = first_instruction, len(step.code)
            record.n_temporaries = step.n_temporaries
            record.workspace = step.workspace
            for slot, number in enumerate(step.ints):
                record.ints[slot] = number
            for slot, value in enumerate(step.floats):
                record.floats[slot] = value
            for operand in step.operands:
                _fill_operand(self.operands[first_operand], operand)
                first_operand += 1
            for instruction in step.code:
                _fill_instruction(self.instructions[first_instruction], instruction)
                first_instruction += 1


def workspace_bytes(step: Step, isa: str, threads: int) -> int:
    """Bytes of arena that `step` needs for itself, beside its operands."""
    _, lib = library()
    tables = _Tables([step])
    count = int(lib.volta_workspace_bytes(tables.steps, tables.operands, isa_code(isa), threads))
    if count < 0:
        given = ", ".join(f"{operand.dtype.name} {operand.shape}" for operand in step.operands)
        raise VerifyError(step.kernel, f"the operands are {given or 'none'}: the kernel takes others")
    return count


class NativeProgram:
    """A validated C program and its arena. Runs of all programs of a process are serialised."""

    def __init__(
        self, steps: Sequence[Step], *, n_buffers: int, arena_bytes: int, isa: str, threads: int
    ) -> None:
        """Buffer 0 is the arena, allocated here once; the other n_buffers - 1 are bound at each run."""
        self._ffi, self._lib = library()
        self.kernels = tuple(step.kernel for step in steps)
        self.n_buffers = n_buffers
        self.arena_bytes = arena_bytes
        self.isa = isa
        self.threads = threads
        tables = _Tables(steps)
        error = self._ffi.new("volta_error *")
        program = self._lib.volta_program_new(
            tables.steps,
            tables.n_steps,
            tables.operands,
            tables.n_operands,
            tables.instructions,
            tables.n_instructions,
            n_buffers,
            arena_bytes,
            isa_code(isa),
            threads,
            error,
        )
        if program == self._ffi.NULL:
            raise self._failure(error)
        self._program = self._ffi.gc(program, self._lib.volta_program_free, arena_bytes)
        self._needed = [self._lib.volta_program_buffer_bytes(program, index) for index in range(n_buffers)]
        self._written = [
            bool(self._lib.volta_program_buffer_written(program, index)) for index in range(n_buffers)
        ]

    def _failure(self, error: Any) -> Exception:
        kernel = self.kernels[error.step] if 0 <= error.step < len(self.kernels) else "program"
        where = f"[{kernel}] step {error.step}"
        first, second = error.detail[0], error.detail[1]
        if error.status == _BAD_PROGRAM:
            rule = self._ffi.string(self._lib.volta_program_rule(first)).decode()
            return VerifyError(kernel, f"step {error.step}: {rule or 'the kernel refused it'} ({second})")
        if error.status == _INDEX_RANGE:
            return IndexRangeError(
                f"{where}: index is {first}: expected 0 <= index < {second}", error.step, (first, second)
            )
        if error.status == _NOT_FINITE:
            return NotFiniteError(
                f"{where}: element {first} is NaN or infinite: expected finite values",
                error.step,
                (first, second),
            )
        if error.status == _NO_MEMORY:
            return MemoryError(f"[program] an arena of {self.arena_bytes} bytes could not be allocated")
        if error.status == _NO_THREAD:
            return DeviceError(f"[program] {self.threads} threads were asked for and could not be created")
        return VoltaError(f"{where}: unknown status {error.status}")

    def bind(self, buffers: Sequence[Array]) -> Any:
        """Checks buffers 1, 2, ... once, for any number of `run_bound`; the caller keeps them alive."""
        if len(buffers) != self.n_buffers - 1:
            raise UsageError(f"[program] {len(buffers)} buffers were given: expected {self.n_buffers - 1}")
        bound = self._ffi.new("void *[]", self.n_buffers)
        for index, array in enumerate(buffers, start=1):
            if not (array.flags.c_contiguous and array.flags.aligned) or array.nbytes < self._needed[index]:
                raise UsageError(
                    f"[program] buffer {index} has {array.nbytes} bytes, contiguous: "
                    f"{array.flags.c_contiguous}, aligned: {array.flags.aligned}: expected "
                    f"{self._needed[index]} contiguous bytes, aligned"
                )
            if self._written[index] and not array.flags.writeable:
                raise UsageError(f"[program] buffer {index} is read-only: expected a writable array")
            bound[index] = self._ffi.cast("void *", address_of(array))
        return bound

    def run(self, buffers: Sequence[Array]) -> None:
        """Runs every step over buffers 1, 2, ...; NumPy arrays that stay alive for the call."""
        self.run_bound(self.bind(buffers))

    def run_addresses(self, addresses: Sequence[int]) -> None:
        """As run, for memory that the caller answers for: nothing is checked."""
        bound = [self._ffi.NULL, *(self._ffi.cast("void *", address) for address in addresses)]
        self.run_bound(self._ffi.new("void *[]", bound))

    def run_bound(self, bound: Any, first: int = 0, last: int | None = None) -> None:
        """One call into C: every step of the program, or those from `first` up to `last`."""
        self._run(bound, first, last, self._ffi.NULL)

    def run_traced(self, bound: Any, first: int = 0, last: int | None = None) -> npt.NDArray[np.float64]:
        """As run_bound; when each thread began and ended each step, [threads, steps, 2], in seconds."""
        stamps = np.zeros((self.threads, len(self.kernels), 2), np.float64)
        self._run(bound, first, last, self._ffi.cast("double *", stamps.ctypes.data))
        return stamps

    def _run(self, bound: Any, first: int, last: int | None, stamps: Any) -> None:
        error = self._ffi.new("volta_error *")
        end = len(self.kernels) if last is None else last
        if self._lib.volta_program_run(self._program, bound, first, end, stamps, error) != 0:
            raise self._failure(error)

    def buffer_bytes(self, index: int) -> int:
        """Bytes of buffer `index` that the steps reach."""
        return int(self._needed[index])

    @property
    def high_water(self) -> int:
        """The end of the highest byte of the arena that the last run used."""
        return int(self._lib.volta_program_high_water(self._program))

    def arena(self) -> npt.NDArray[np.uint8]:
        """The arena's bytes, shared: valid while this program lives."""
        pointer = self._lib.volta_program_arena(self._program)
        return np.frombuffer(self._ffi.buffer(pointer, self.arena_bytes), np.uint8)


# --- one kernel --------------------------------------------------------------------------------------


def address_of(array: Array) -> int:
    """Where the first element lies; faster than `array.ctypes.data`."""
    address: int = array.__array_interface__["data"][0]
    return address


def _view(array: Array, buffer: int) -> tuple[Operand, int]:
    """The operand that describes `array`, and the address of the lowest byte it reaches."""
    dtype = _BY_NUMPY.get(array.dtype)
    if dtype is None:
        raise UsageError(
            f"[native] an operand has dtype {array.dtype}: expected float32, int32, int8 or uint16"
        )
    if any(stride % array.itemsize for stride in array.strides):
        raise UsageError(f"[native] an operand has byte strides {array.strides}: expected whole elements")
    strides = tuple(stride // array.itemsize for stride in array.strides)
    reach = (
        (size - 1) * stride
        for size, stride in zip(array.shape, array.strides, strict=True)
        if stride < 0 < array.size
    )
    below = -sum(reach)
    return Operand(buffer, dtype, below, array.shape, strides), array.ctypes.data - below


def run_kernel(
    kernel: str,
    operands: Sequence[Array],
    n_outputs: int,
    *,
    ints: Sequence[int] = (),
    floats: Sequence[float] = (),
    code: Sequence[tuple[str, int, Sequence[int], Sequence[float]]] = (),
    isa: str = "ref",
    threads: int = 1,
) -> None:
    """Runs one kernel over NumPy arrays of any strides: float32, int32, uint16 for bfloat16.

    `operands` are the outputs, which are written in place, then the inputs. `code` is a sequence of
    (op, to, inputs, immediate values); registers beyond the operands are temporaries.
    """
    for array in operands[:n_outputs]:
        if not array.flags.writeable:
            raise UsageError(f"[{kernel}] an output is read-only: expected a writable array")
    views = [_view(array, index) for index, array in enumerate(operands, start=1)]
    step = Step(
        kernel=kernel,
        operands=tuple(operand for operand, _ in views),
        n_outputs=n_outputs,
        ints=tuple(ints),
        floats=tuple(floats),
        code=tuple(Instruction(op, to, tuple(inputs), tuple(imm)) for op, to, inputs, imm in code),
    )
    arena_bytes = workspace_bytes(step, isa, threads)
    program = NativeProgram(
        [step], n_buffers=len(operands) + 1, arena_bytes=arena_bytes, isa=isa, threads=threads
    )
    program.run_addresses([address for _, address in views])
