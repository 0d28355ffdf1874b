"""The gateway: one path from a graph to running code, and errors in the model's terms."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ops.parity import assert_same_bits, isas

import volta as vt
from volta.backends.null import NullBackend
from volta.dtypes import float32, int32
from volta.errors import DeviceError, IndexRangeError, NotFiniteError, UsageError
from volta.ir.graph import Graph, GraphBuilder
from volta.plan.build import build
from volta.runtime import gateway
from volta.runtime.policy import Policy

REF = Policy(isa="ref", threads=1)


def affine() -> Graph:
    builder = GraphBuilder()
    x, w = builder.input("x", (2, 3), float32), builder.input("w", (3, 2), float32, "parameter")
    c = builder.constant(np.array([1, -1], np.float32))
    return builder.freeze([builder.add("add", (builder.add("matmul", (x, w)), c))])


def arrays() -> list[Any]:
    return [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3, 2), np.float32)]


def test_a_graph_is_planned_compiled_and_run() -> None:
    executable = gateway.compile(affine())
    (y,) = executable.run(arrays())
    assert y.tolist() == [[4.0, 2.0], [13.0, 11.0]]
    assert [str(kind) for kind in executable.input_types] == ["f32[2,3]", "f32[3,2]"]
    assert [str(kind) for kind in executable.output_types] == ["f32[2,2]"]


def test_outputs_are_fresh_and_inputs_untouched() -> None:
    executable, given = gateway.compile(affine()), arrays()
    first, second = executable.run(given)[0], executable.run(given)[0]
    assert first is not second
    assert_same_bits(first, second)
    for array, before in zip(given, arrays(), strict=True):
        assert_same_bits(array, before)


def test_the_plan_tells_what_each_pass_did() -> None:
    plan = gateway.plan(affine(), REF)
    assert [name for name, _, _ in plan.passes] == ["fold", "simplify", "cse", "dce", "fuse", "epilogue"]
    assert plan.passes[0][1] == 5
    assert plan.passes[-1] == ("epilogue", 5, 4)
    assert gateway.plan(affine(), Policy(isa="ref", threads=1, passes=())).passes == ()
    with vt.runtime(isa="ref", threads=1):
        assert gateway.plan(affine()).fingerprint == plan.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a[:1], r"\[run\] 1 inputs were given: expected 2"),
        (lambda a: [a[0].T, a[1]], r"\[run\] input x is float32\[3, 2\]: expected f32\[2,3\]"),
        (
            lambda a: [a[0], a[1].astype(np.float64)],
            r"\[run\] input w is float64\[3, 2\]: expected f32\[3,2\]",
        ),
        (lambda a: [a[0].view(np.int32), a[1]], r"\[run\] input x is int32\[2, 3\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        gateway.compile(affine()).run(change(arrays()))


def test_arrays_in_any_order_and_alignment_are_read() -> None:
    given = arrays()
    expected = gateway.compile(affine()).run(arrays())[0]
    block = np.zeros(25, np.uint8)
    shifted = block[1:].view(np.float32) if block[1:].ctypes.data % 4 == 0 else given[0].reshape(-1)
    turned = [np.asfortranarray(given[0]), np.ones((6, 2), np.float32)[::2]]
    assert_same_bits(gateway.compile(affine()).run(turned)[0], expected)
    assert shifted.size == 6


def test_a_session_runs_many_times_over_one_memory() -> None:
    session = gateway.compile(affine()).bind(arrays())
    session.run()
    (output,) = session.outputs
    assert output.tolist() == [[4.0, 2.0], [13.0, 11.0]]
    session.inputs[0][:] = 0
    session.run()
    assert session.outputs[0] is output
    assert output.tolist() == [[1.0, -1.0], [1.0, -1.0]]


def test_a_traced_run_stamps_every_step_of_every_thread() -> None:
    executable = gateway.compile(affine(), Policy(isa="ref", threads=3, passes=()))
    session = executable.bind(arrays())
    stamps = session.run_traced()
    assert stamps.shape == (3, len(executable.plan.steps), 2) == (3, 2, 2)
    assert (stamps[..., 1] >= stamps[..., 0]).all()
    assert session.outputs[0].tolist() == [[4.0, 2.0], [13.0, 11.0]]


def test_a_small_program_runs_on_one_thread_unless_threads_are_asked_for() -> None:
    """Meeting at barriers would take longer than its work; the bits are the same."""
    cpus = gateway.cpu_info().cpus
    assert "/1 threads/" in gateway.compile(affine(), Policy()).signature
    assert "/3 threads/" in gateway.compile(affine(), Policy(threads=3)).signature
    builder = GraphBuilder()
    x = builder.input("x", (256, 256), float32)
    large = builder.freeze([builder.add("matmul", (x, x))])
    assert f"/{cpus} threads/" in gateway.compile(large, Policy()).signature
    assert "/1 threads/" in gateway.compile(large, Policy(threads=1)).signature


def test_one_executable_serves_many_threads_with_one_arena() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (8, 8), float32)
    squared = builder.add("softmax", (builder.add("matmul", (x, x)),))
    executable = gateway.compile(builder.freeze([builder.add("matmul", (squared, x))]))
    cases = [np.random.default_rng(i).standard_normal((8, 8)).astype(np.float32) for i in range(4)]
    expected = [executable.run([case])[0] for case in cases]
    wrong: list[int] = []

    def work(index: int) -> None:
        for _ in range(100):
            same = np.array_equal(executable.run([cases[index]])[0], expected[index])
            wrong.extend([] if same else [index])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not wrong


def test_an_executable_knows_what_it_holds_in_memory() -> None:
    executable = gateway.compile(affine(), Policy(isa="ref", threads=1, passes=()))
    assert executable.nbytes == executable.plan.arena_bytes + 8
    assert executable.plan.arena_bytes > 0


def test_a_run_that_stopped_may_have_overwritten_inputs_up_to_the_next_barrier() -> None:
    """a is overwritten by the first step, b by the last: a run that stops in between has lost a alone."""
    builder = GraphBuilder()
    a, b = (builder.input(name, (4, 4), float32, "state") for name in "ab")
    first = builder.add("neg", (a,))
    checked = builder.add("check_finite", (builder.add("softmax", (first,)),), {"names": ("x",)})
    graph = builder.freeze([first, builder.add("add", (b, checked))], {0: a, 1: b})
    executable = gateway.compile(graph, Policy(isa="ref", threads=1, passes=()))
    kernels = [step.kernel for step in executable.plan.steps]
    assert kernels == ["chain", "softmax", "check_finite", "chain"]
    assert executable.overwritten(kernels.index("check_finite")) == {0}
    assert executable.overwritten(len(kernels) - 1) == {0, 1}


# --- failures while running --------------------------------------------------------------------------


def lookups() -> Graph:
    builder = GraphBuilder()
    table, index = builder.input("table", (3, 2), float32), builder.input("index", (2,), int32)
    rows = builder.add("embedding", (table, index))
    return builder.freeze([builder.add("check_finite", (rows,), {"names": ("first", "second")})])


def test_an_index_out_of_range_names_the_operation_the_value_and_the_limit() -> None:
    executable = gateway.compile(lookups(), REF)
    table = np.ones((3, 2), np.float32)
    with pytest.raises(IndexRangeError, match=r"^\[embedding\] index is 3: expected 0 to 2$") as caught:
        executable.run([table, np.array([0, 3], np.int32)])
    assert (caught.value.step, caught.value.detail) == (0, (3, 3))
    assert executable.run([table, np.array([0, 2], np.int32)])[0].tolist() == [[1, 1], [1, 1]]


def test_a_check_names_the_element_or_gives_its_number() -> None:
    executable = gateway.compile(lookups(), REF)
    for at, name in ((0, "first"), (1, "second"), (3, "element 3")):
        table = np.ones((3, 2), np.float32)
        table.reshape(-1)[at] = np.nan
        with pytest.raises(NotFiniteError, match=rf"^\[check_finite\] {name} is NaN or infinite$") as caught:
            executable.run([table, np.array([0, 1], np.int32)])
        assert caught.value.detail[0] == at


def test_the_first_of_two_failures_is_reported_whatever_the_threads() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (2,), float32)
    first = builder.add("check_finite", (x,), {"names": ("early", "early")})
    second = builder.add("check_finite", (builder.add("neg", (first,)),), {"names": ("late", "late")})
    graph = builder.freeze([second])
    for threads in (1, 2, 3):
        with pytest.raises(NotFiniteError, match="early"):
            gateway.compile(graph, Policy(threads=threads)).run([np.full(2, np.inf, np.float32)])


def test_a_sample_from_logits_that_are_not_finite_names_the_row() -> None:
    builder = GraphBuilder()
    logits = builder.input("logits", (2, 3), float32)
    zeros = builder.constant(np.zeros((2, 3), np.int32)), builder.constant(np.zeros((2, 4), np.int32))
    settings = builder.constant(np.array([[1, 1, 1, 0]] * 2, np.float32))
    top_k = builder.constant(np.zeros(2, np.int32))
    token = builder.add("sample", (logits, zeros[0], zeros[1], settings, top_k))
    values = np.zeros((2, 3), np.float32)
    values[1] = np.nan
    with pytest.raises(NotFiniteError, match=r"^\[sample\] row 1 is NaN or infinite$"):
        gateway.compile(builder.freeze([token])).run([values])


def test_a_failure_outside_any_step_is_passed_on() -> None:
    executable = gateway.compile(affine(), REF)
    error = NotFiniteError("[program] somewhere", -1, (0, 0))
    assert executable.explain(error) is error


def test_a_failed_run_leaves_the_program_usable() -> None:
    compiled = vt.compile(lambda x: vt.check_finite(x) + 1)
    with pytest.raises(NotFiniteError):
        compiled(vt.asarray([np.nan]))
    assert compiled(vt.asarray([1.0])).item() == 2.0


# --- devices ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["opencl", "cuda"])
def test_a_device_that_this_version_lacks_is_refused(device: str) -> None:
    with pytest.raises(DeviceError, match=rf"^\[runtime\] device is '{device}': this version has cpu only$"):
        gateway.compile(affine(), Policy(device=device))


def test_a_ceiling_is_measured_where_the_processor_has_the_instruction() -> None:
    rate = gateway.probe("add", "ref", 1, seconds=1e-4)
    assert rate is not None
    assert rate > 0
    assert gateway.probe("bf16", "ref", 1) is None


# --- tuned blocks ----------------------------------------------------------------------------------------

FAST = isas()[1:]


def product(k: int = 40) -> Graph:
    builder = GraphBuilder()
    a, b = builder.input("a", (30, k), float32), builder.input("b", (k, 50), float32)
    return builder.freeze([builder.add("matmul", (a, b))])


def factors(k: int = 40) -> list[Any]:
    generator = np.random.default_rng(k)
    return [generator.standard_normal(shape, np.float32) for shape in ((30, k), (k, 50))]


@pytest.mark.parametrize("isa", FAST)
def test_register_tiles_are_of_one_kind_and_run_here(isa: str) -> None:
    for kind in ("f32", "bf16", "i8"):
        tiles = gateway.register_tiles(kind, isa)
        assert tiles
        assert {(tile.kind, tile.available) for tile in tiles} == {(kind, True)}
    assert gateway.register_tiles("f32", "ref") == ()


@pytest.mark.parametrize("isa", FAST)
def test_blocks_of_a_table_are_in_the_plan_and_change_no_bit(
    isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried alone, they are kept nowhere; kept, every plan from then on has them; cleared, none."""
    monkeypatch.setenv("VOLTA_CACHE", str(tmp_path))
    policy, given = Policy(isa=isa, threads=2), factors()
    plain = gateway.compile(product(), policy)
    expected = gateway.compile(product(), REF).run(given)[0]
    (key,) = gateway.matmul_keys(plain.plan, isa, 2)
    tile = gateway.register_tiles("f32", isa)[-1]
    blocks = gateway.Blocks(tile.name, 32, 64, 256, 3, 10, 1)
    tried = gateway.compile_tuned(product(), isa, 2, {key: blocks})
    assert tried.plan.steps[0].ints == (1, tile.id, 32, 64, 256, 3, 10, 1)
    assert gateway.tuned_tables().cached == {}
    assert gateway.compile(product(), policy) is plain
    assert gateway.keep_tuned({key: blocks}) == gateway.tuned_path()
    assert gateway.tuned_tables().cached == {key: blocks}
    kept = gateway.compile(product(), policy)
    assert kept.plan.steps[0].ints == tried.plan.steps[0].ints != plain.plan.steps[0].ints
    assert len(gateway.compile(product(41), policy).plan.steps[0].ints) == 1
    for executable in (plain, tried, kept):
        assert_same_bits(executable.run(given)[0], expected)
    assert gateway.clear_tuned() == gateway.tuned_path()
    assert gateway.compile(product(), policy) is plain


@pytest.mark.skipif(not FAST, reason="this processor has no tiles to choose from")
def test_a_key_is_told_once_and_weights_that_are_packed_have_none() -> None:
    builder = GraphBuilder()
    x, w = builder.input("x", (30, 40), float32), builder.input("w", (40, 40), float32, "parameter")
    once = builder.add("matmul", (x, w))
    graph = builder.freeze([builder.add("matmul", (once, w)), builder.add("matmul", (w, w))])
    policy = Policy(isa=FAST[-1], threads=1)
    keys = gateway.matmul_keys(gateway.plan(graph, policy), FAST[-1], 1)
    assert [key.split()[3] for key in keys] == ["30x40x40", "40x40x40"]
    packed = gateway.compile(graph, policy, frozenset({1}))
    assert "pack_weights" in [step.kernel for step in packed.plan.steps]
    assert not [key for key in gateway.matmul_keys(packed.plan, FAST[-1], 1) if "30x40x40" in key]


# --- the null backend --------------------------------------------------------------------------------


def test_the_null_backend_plans_and_refuses_to_compute() -> None:
    backend = NullBackend()
    plan = build(affine(), backend.target)
    assert [step.kernel for step in plan.steps] == ["matmul", "chain"]
    program = backend.compile(plan)
    assert (program.plan, program.measured_arena_bytes, backend.target.signature) == (plan, 0, "null")
    for run in (program.bind([]).run, program.bind([]).run_traced):
        with pytest.raises(DeviceError, match=r"\[null\] this backend plans only: it computes nothing"):
            run()


def test_the_processor_is_described() -> None:
    info = gateway.cpu_info()
    assert info.isas[0] == "ref"
    assert info.cpus >= 1
