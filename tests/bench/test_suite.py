"""How a suite measures: fresh inputs, poisoned outputs, rotated copies, sides in turn, checked results."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.bench.conftest import LocalSides, valid

from volta.bench import cases, peers, quiet, suite, worker
from volta.bench.cases import AbsentError, Case
from volta.bench.peers.cases import NumpyCase
from volta.bench.report import Report
from volta.bench.sides import Side
from volta.bench.suite import MOST_COPIES, ROTATED_BYTES, Method
from volta.bench.worker import Server, VoltaCase
from volta.errors import UsageError, VoltaError
from volta.runtime.policy import runtime

Array = npt.NDArray[Any]
QUICK = Method(rounds=2, seconds=1e-5, seed=7)
GEMM = [cases.gemm(dtype, 5, 4, 33) for dtype in cases.DTYPES]
ATTENTION = [cases.attention(1, 2, 5, 8, backward) for backward in (False, True)]
OPS = [cases.op(kind, 6, 40) for kind in cases.OPERATIONS]
ALL = [*GEMM, *ATTENTION, *OPS]
each_case = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)


def run(*chosen: Case, sides: tuple[str, ...] = ()) -> Report:
    return suite.run("gemm", chosen, (1,), sides, QUICK)


# --- inputs ----------------------------------------------------------------------------------------


@each_case
def test_inputs_are_random_and_never_zero(case: Case) -> None:
    """Zeros would multiply faster on some hardware and hide a sum that was left out."""
    for one, array in zip(case.inputs, case.arrays(7), strict=True):
        assert array.shape == one.shape
        assert np.count_nonzero(array) > 0.9 * array.size
        assert np.unique(array).size > 1


@each_case
def test_every_copy_and_every_seed_has_inputs_of_its_own(case: Case) -> None:
    """And the same ones in every process that asks for them."""
    first = [array.tobytes() for array in case.arrays(7)]
    assert first == [array.tobytes() for array in case.arrays(7)]
    for others in (case.arrays(7, copy=1), case.arrays(8)):
        assert all(a != b.tobytes() for a, b in zip(first, others, strict=True))


def test_a_run_draws_a_new_seed_unless_one_is_given() -> None:
    assert len({suite.fresh_seed() for _ in range(8)}) == 8


def test_all_sides_get_the_same_inputs(local: LocalSides, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, list[bytes]] = {}

    def noting(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
        def made(case: Case, arrays: list[Array], threads: int) -> Any:
            given.setdefault(name, []).extend(array.tobytes() for array in arrays)
            return make(case, arrays, threads)

        return made

    for name in ("volta", "numpy"):
        monkeypatch.setitem(worker.MAKERS, name, noting(name, worker.MAKERS[name]))
    run(GEMM[0], sides=("numpy",))
    assert given["volta"] == given["numpy"]


# --- what is measured -------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [1, 1000, 1 << 20, 3 << 20, ROTATED_BYTES, ROTATED_BYTES + 1, 1 << 40])
def test_copies_fill_what_no_cache_holds(held: int) -> None:
    """As many as fit, but one at least and not more than the most."""
    copies = suite.copies_of(held)
    assert 1 <= copies <= MOST_COPIES
    assert copies in (1, MOST_COPIES) or copies * held <= ROTATED_BYTES < (copies + 1) * held


class Counted:
    """A case that only counts its runs."""

    description = "counted"

    def __init__(self, case: Case, arrays: list[Array], threads: int) -> None:
        self.arrays, self.runs = arrays, 0

    def run(self) -> None:
        self.runs += 1

    def outputs(self) -> list[Array]:
        return [np.zeros(1)]

    def poison(self) -> None:
        pass


def test_runs_go_round_the_copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Samples of any length use every copy equally often, where the last one stopped."""
    monkeypatch.setitem(worker.MAKERS, "volta", Counted)
    server = Server("volta", 1)
    server.prepare("gemm", dict(GEMM[0].parameters), 7, 5, str(tmp_path / "out.npz"))
    copies: list[Any] = server.copies
    assert len({copy.arrays[0].tobytes() for copy in copies}) == 5
    before = copies[0].runs
    copies[0].runs = 0
    assert before == 2  # once, and once again over poison
    for seconds in (1e-9, 1e-5, 3e-5, 1e-9, 1e-9):
        server.run(seconds)
        runs = [copy.runs for copy in copies]
        assert max(runs) - min(runs) <= 1


def test_a_sample_is_the_mean_of_its_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """By a clock that advances by one second per reading: n runs between two readings are 1/n each."""
    monkeypatch.setitem(worker.MAKERS, "volta", Counted)
    server = Server("volta", 1)
    server.prepare("gemm", dict(GEMM[0].parameters), 7, 2, str(tmp_path / "out.npz"))
    clock = iter(range(1000))
    monkeypatch.setattr(worker.time, "perf_counter", lambda: float(next(clock)))
    assert server.run(8.0) == {"seconds": 1 / 8, "runs": 8}


def test_sides_alternate_and_each_is_first_as_often(
    local: LocalSides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A B B A A B ..: what drifts does not favour one."""
    order: list[str] = []

    class Timed:
        def __init__(self, name: str) -> None:
            self.name = name

        def ask(self, action: str, seconds: float) -> dict[str, float]:
            order.append(self.name)
            return {"seconds": 1.0}

    ready: Any = {name: Timed(name) for name in ("volta", "numpy", "torch")}
    samples = suite.alternate(ready, Method(rounds=4, seconds=1e-6))
    rounds = [order[i : i + 3] for i in range(0, 12, 3)]
    assert all(a == b[::-1] for a, b in pairwise(rounds))
    assert {name: len(values) for name, values in samples.items()} == dict.fromkeys(ready, 4)


def test_a_process_is_not_quiet_while_a_thread_of_it_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    """As BLAS threads do after their last work: the next side is timed when they sleep."""
    spinning = threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 1_000_000))
    spinning.start()  # it needs no lock of Python's while it computes
    while not quiet.running():
        assert spinning.is_alive()
    with monkeypatch.context() as short:
        short.setattr(quiet, "LONGEST_SECONDS", 0.01)
        assert not quiet.wait()
    spinning.join()
    assert quiet.wait()


def test_a_worker_is_quiet_when_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Noting:
        def run(self) -> dict[str, Any]:
            order.append("run")
            return {}

    answers = io.StringIO()
    monkeypatch.setattr(worker.quiet, "wait", lambda: order.append(f"quiet, {answers.getvalue()!r}"))
    monkeypatch.setattr(worker.sys, "stdin", io.StringIO('{"do": "run"}\n'))
    worker.serve(Noting(), answers)
    assert order == ["run", "quiet, ''"]
    assert answers.getvalue() == "{}\n"


@pytest.mark.parametrize(
    ("case", "operations", "nbytes"),
    [
        (cases.gemm("f32", 5, 4, 33), 2 * 5 * 4 * 33, 4 * (5 * 33 + 33 * 4 + 5 * 4)),
        (cases.gemm("bf16", 5, 4, 33), 2 * 5 * 4 * 33, 2 * (5 * 33 + 33 * 4) + 4 * 5 * 4),
        (cases.op("add", 6, 40), 6 * 40, 4 * 3 * 6 * 40),
    ],
)
def test_work_is_counted_from_the_shapes(case: Case, operations: int, nbytes: int) -> None:
    work, held, _ = suite.extent(case)
    assert (work.flops, work.bytes, held) == (operations, nbytes, nbytes)


# --- correctness -----------------------------------------------------------------------------------


def test_a_result_of_all_cases_is_valid(local: LocalSides) -> None:
    """Every operation of every suite agrees with float64 and, Volta's, with plain C in every bit."""
    found = run(*ALL, sides=("numpy",))
    assert valid(found.document())
    assert [one.name for one in found.measurements] == [case.name for case in ALL]
    for one in found.measurements:
        assert one.sides["volta"].check.startswith("0 of ")
        assert len(one.sides["volta"].seconds) == QUICK.rounds
    assert [name for one in found.measurements for name in one.ratios] == ["numpy"]  # f32 product


@each_case
def test_one_changed_bit_of_volta_is_found(
    case: Case, local: LocalSides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every output of every case, however small the change."""
    honest = VoltaCase.outputs
    count = len(case.true_outputs(case.arrays(7)))
    for which in range(count):

        def changed(self: VoltaCase, which: int = which) -> list[Array]:
            found = [array.copy() for array in honest(self)]
            flat = found[which].reshape(-1).view(np.uint32)
            flat[flat.size // 2] ^= 1
            return found

        monkeypatch.setattr(VoltaCase, "outputs", changed)
        with pytest.raises(VoltaError, match=r"1 of .* elements of .* differ from the plain C reference"):
            run(case)


@pytest.mark.parametrize("side", ["volta", "numpy"])
def test_a_side_that_computes_something_else_is_found(
    side: str, local: LocalSides, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: Any = {"volta": VoltaCase, "numpy": NumpyCase}[side]
    honest = kind.outputs
    monkeypatch.setattr(kind, "outputs", lambda self: [array * np.float32(1.001) for array in honest(self)])
    with pytest.raises(VoltaError, match=f"{side} is wrong in f32 5x4x33"):
        run(GEMM[0], sides=("numpy",))


@pytest.mark.parametrize("side", ["volta", "numpy"])
@pytest.mark.parametrize("when", ["never", "only once"])
def test_a_side_that_writes_nothing_is_found(
    side: str, when: str, local: LocalSides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier run or a neighbour left in the memory is overwritten before the checked run."""
    kind: Any = {"volta": VoltaCase, "numpy": NumpyCase}[side]
    honest, ran = kind.run, set[int]()

    def lazy(self: Any) -> None:
        if when == "only once" and id(self) not in ran:
            honest(self)
        ran.add(id(self))

    monkeypatch.setattr(kind, "run", lazy)
    with pytest.raises(VoltaError, match=f"{side} is wrong in f32 5x4x33: largest error inf"):
        run(GEMM[0], sides=("numpy",))


@pytest.mark.parametrize("case", [*GEMM[:1], *ATTENTION, *OPS], ids=lambda case: case.name)
def test_poison_reaches_every_element(case: Case) -> None:
    found = VoltaCase(case, case.arrays(7), 1)
    found.run()
    found.poison()
    for array in found.outputs():
        assert np.all(np.isnan(array)) if array.dtype.kind == "f" else np.all(array == -1)


def test_a_missing_or_misshapen_result_is_found() -> None:
    case = OPS[list(cases.OPERATIONS).index("layer_norm_grad")]
    arrays = case.arrays(7)
    truth = case.true_outputs(arrays)
    with pytest.raises(VoltaError, match="numpy gave 0 results"):
        suite.check(case, "numpy", [], truth, arrays)
    with pytest.raises(VoltaError, match=rf"volta gave 1 results .* expected {len(truth)}"):
        suite.check(case, "volta", truth[:1], truth, arrays)
    with pytest.raises(VoltaError, match=r"numpy gave .* expected"):
        suite.check(case, "numpy", [truth[0][:1]], truth, arrays)


# --- what is left out -------------------------------------------------------------------------------


def test_a_case_that_a_peer_lacks_is_counted_by_name(local: LocalSides) -> None:
    found = run(*GEMM, sides=("numpy",))
    assert found.skipped == ("numpy: NumPy has no such operation in C (2 cases)",)
    assert found.summary()["numpy"]["cases"] == 1


def test_a_peer_that_is_not_installed_is_skipped_by_name(
    local: LocalSides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked once, not for every case; the others are measured."""

    def absent(case: Case, arrays: list[Array], threads: int) -> Any:
        raise ImportError("No module named 'torch'")

    monkeypatch.setitem(worker.MAKERS, "torch", absent)
    found = run(*GEMM, sides=("torch", "numpy"))
    assert found.skipped[0] == "torch: not installed (No module named 'torch')"
    assert set(found.measurements[0].sides) == {"volta", "numpy"}
    assert "torch" not in found.summary()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: cases.gemm("f64", 1, 1, 1), "dtype is 'f64': expected one of f32, bf16, int8"),
        (lambda: cases.gemm("f32", 0, 1, 1), "m is 0: expected a whole number above 0"),
        (lambda: cases.gemm("f32", 1, -4, 1), "n is -4"),
        (lambda: cases.gemm("f32", 1 << 20, 1 << 20, 1), "too large"),
        (lambda: cases.op("cosine", 1, 1), "op is 'cosine': expected one of gelu_tanh"),
        (lambda: cases.op("add", 1, 0), "width is 0"),
        (lambda: cases.op("add", 1 << 20, 1 << 20), "too large"),
        (lambda: cases.attention(1, 0, 8, 8, False), "heads is 0"),
        (lambda: cases.attention(1, 1, 1 << 20, 8, False), "too large"),
        (lambda: Method(rounds=0), "rounds is 0: expected 1 to 1000"),
        (lambda: Method(seconds=0.0), "seconds is 0.0: expected more than 0"),
        (lambda: Method(seconds=float("nan")), "seconds is nan"),
        (lambda: Method(seed=-1), "seed is -1: expected 0 or more"),
        (lambda: suite.run("gemm", [], (1,), (), QUICK), "gemm has 0 cases"),
    ],
)
def test_what_no_run_could_do_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError) as error:
        make()
    assert said in str(error.value)


def test_a_case_larger_than_the_memory_is_refused_before_anything_is_measured(
    local: LocalSides, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = suite.machine()
    monkeypatch.setattr(suite, "machine", lambda: {**facts, "memory_bytes": 100_000})
    with pytest.raises(UsageError, match=r"f32 256x256x256 needs about .* GB on 1 side"):
        run(GEMM[0], cases.gemm("f32", 256, 256, 256))
    assert local.get("volta", 1).asked == []


def test_a_pinned_instruction_set_that_is_unknown_is_refused_first(local: LocalSides) -> None:
    with pytest.raises(UsageError, match="isa is 'neon'"), runtime(isa="neon"):
        run(GEMM[0])


# --- the workers' processes --------------------------------------------------------------------------


@pytest.fixture
def side() -> Any:
    with_process = Side("volta", 1, "cases")
    yield with_process
    with_process.close(0)


def test_a_worker_answers_and_ends_with_its_input(side: Side, tmp_path: Any) -> None:
    request = {"suite": "gemm", "parameters": dict(GEMM[0].parameters), "seed": 7, "copies": 2}
    answer = side.ask("prepare", **request, out=str(tmp_path / "out.npz"))
    assert answer["description"].startswith("Volta, cpu/")
    assert side.ask("run", seconds=1e-5)["seconds"] > 0
    with np.load(tmp_path / "out.npz") as found:
        assert np.allclose(found["arr_0"], GEMM[0].true_outputs(GEMM[0].arrays(7))[0], atol=1e-4)
    side.close()
    assert side._process.returncode == 0


def test_a_failure_in_a_worker_is_one_line_with_its_name(side: Side, tmp_path: Any) -> None:
    with pytest.raises(VoltaError, match=r"\[bench\] volta: UsageError: .*dtype is 'f64'") as error:
        side.ask(
            "prepare",
            suite="gemm",
            parameters={"dtype": "f64", "m": 1, "n": 1, "k": 1},
            seed=7,
            copies=1,
            out=str(tmp_path / "out.npz"),
        )
    assert "\n" not in str(error.value)


def test_a_worker_that_dies_is_named_with_its_exit_code(side: Side) -> None:
    os.kill(side._process.pid, signal.SIGKILL)
    with pytest.raises(VoltaError, match=r"volta ended \(-9\): it said nothing"):
        side.ask("run", seconds=1e-5)


def test_an_absent_case_is_told_from_an_absent_library() -> None:
    numpy_side = Side("numpy", 1, "cases")
    try:
        with pytest.raises(AbsentError) as absent:
            numpy_side.ask(
                "prepare",
                suite="ops",
                parameters={"kind": "add", "rows": 2, "width": 2},
                seed=7,
                copies=1,
                out=os.devnull,
            )
    finally:
        numpy_side.close(0)
    assert not absent.value.everywhere


def test_every_peer_has_a_maker() -> None:
    assert set(peers.cases.CASES) == {"numpy", "torch"}
    assert set(worker.MAKERS) == {"volta", *peers.cases.CASES}
