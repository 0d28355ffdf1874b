"""A tuned table is used without being asked for, by the products it names, and changes no bit."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.parity import assert_same_bits, isas
from tests.tune.products import KINDS, LAYOUTS, Product, step_of

import volta as vt
from volta.backends.cpu import native, tuned
from volta.backends.cpu.tuned import LARGEST_BLOCK, Blocks
from volta.dtypes import float32
from volta.errors import VerifyError
from volta.ir.graph import TensorType
from volta.plan.steps import Plan
from volta.runtime import gateway
from volta.runtime.policy import Policy

FAST = isas()[1:]
pytestmark = pytest.mark.skipif(not FAST, reason="this processor has no tiles to choose from")


def other_blocks(product: Product, isa: str) -> Blocks:
    """Not what the kernel would choose: another tile where there is one, other blocks, everything copied."""
    tile = native.tiles_of(product.a, isa)[-1 if not product.groups else 0]
    return Blocks(tile.name, 64, 64, 256, 5, 10, 1)


def ints_of(plan: Plan) -> tuple[int, ...]:
    (ints,) = [step.ints for step in plan.steps if step.kernel.startswith("matmul")]
    return ints


@pytest.mark.parametrize("isa", FAST)
@pytest.mark.parametrize("name", KINDS)
def test_a_product_uses_its_row_and_keeps_its_bits(cache: Path, isa: str, name: str) -> None:
    product, policy = KINDS[name], Policy(isa=isa, threads=2)
    arrays, blocks = product.arrays(), other_blocks(product, isa)
    plain = gateway.compile(product.graph, policy)
    before = plain.run(arrays)[0]
    assert len(ints_of(plain.plan)) == 1
    key, _ = step_of(product.graph, isa, 2)
    gateway.keep_tuned({key: blocks})
    executable = gateway.compile(product.graph, policy)
    assert ints_of(executable.plan)[1:] == blocks.ints() != ()
    assert executable.plan.fingerprint != plain.plan.fingerprint
    assert executable.signature == f"{plain.signature}/tuned {gateway.tuned_table().digest}"
    assert_same_bits(executable.run(arrays)[0], before, name)
    assert_same_bits(before, product.expected(), name)
    gateway.clear_tuned()
    assert gateway.compile(product.graph, policy) is plain


@pytest.mark.parametrize("isa", FAST)
def test_an_eager_product_and_a_compiled_one_use_the_same_row(cache: Path, isa: str) -> None:
    """As does one of a batch whose rows are one matrix."""
    product = KINDS["f32"]
    a, b = product.arrays()
    key, _ = step_of(product.graph, isa, 2)
    kind = [TensorType(array.shape, float32) for array in (a, b)]
    with vt.runtime(isa=isa, threads=2):
        before = vt.matmul(vt.asarray(a), vt.asarray(b)).numpy()
        gateway.keep_tuned({key: other_blocks(product, isa)})
        eager = gateway.compile_op("matmul", (kind[0], kind[1]), {})
        compiled = vt.compile(vt.matmul)
        assert ints_of(eager.plan) == (1, *other_blocks(product, isa).ints())
        assert_same_bits(vt.matmul(vt.asarray(a), vt.asarray(b)).numpy(), before)
        assert_same_bits(compiled(vt.asarray(a), vt.asarray(b)).numpy(), before)
        batch = vt.compile(vt.matmul).traced(vt.asarray(a[None]), vt.asarray(b))
        assert ints_of(gateway.plan(batch.graph)) == (1, *other_blocks(product, isa).ints())


def test_what_follows_the_product_changes_no_key(cache: Path) -> None:
    """A bias and an activation run on the finished tile: the row is that of the product alone."""
    product, isa = KINDS["f32"], FAST[-1]
    key, _ = step_of(product.graph, isa, 2)
    gateway.keep_tuned({key: other_blocks(product, isa)})
    given = [vt.asarray(array) for array in (*product.arrays(), np.ones(product.n, np.float32))]
    with vt.runtime(isa=isa, threads=2):
        plan = gateway.plan(vt.compile(lambda a, b, c: vt.gelu(vt.matmul(a, b) + c)).traced(*given).graph)
    assert [step.kernel for step in plan.steps] == ["matmul"]
    assert ints_of(plan)[1:] == other_blocks(product, isa).ints()


@pytest.mark.parametrize(
    "change", [{"m": 44}, {"n": 524}, {"k": 132}, {"a_layout": "columns"}, {"b_layout": "wide rows"}]
)
def test_another_size_or_layout_is_another_product(cache: Path, change: dict[str, object]) -> None:
    product, isa = KINDS["f32"], FAST[-1]
    key, _ = step_of(product.graph, isa, 2)
    gateway.keep_tuned({key: other_blocks(product, isa)})
    other = replace(product, **change)  # type: ignore[arg-type]
    assert len(ints_of(gateway.plan(other.graph, Policy(isa=isa, threads=2)))) == 1


def test_a_row_is_for_its_instruction_set_and_threads_alone(cache: Path) -> None:
    product = KINDS["f32"]
    key, _ = step_of(product.graph, FAST[-1], 2)
    gateway.keep_tuned({key: other_blocks(product, FAST[-1])})
    for isa in isas():
        for threads in (1, 2, 3):
            ints = ints_of(gateway.plan(product.graph, Policy(isa=isa, threads=threads)))
            assert (len(ints) > 1) == (isa == FAST[-1] and threads == 2)


def test_batches_of_matrices_have_no_key() -> None:
    given = [vt.asarray(np.ones(shape, np.float32)) for shape in ((2, 8, 9), (2, 9, 7))]
    graph = vt.compile(vt.matmul).traced(*given).graph
    isa = FAST[-1]
    assert gateway.matmul_keys(gateway.plan(graph, Policy(isa=isa, threads=1)), isa, 1) == {}


@pytest.mark.parametrize("a_layout", LAYOUTS)
@pytest.mark.parametrize("b_layout", LAYOUTS)
def test_every_layout_has_a_key_of_its_own(a_layout: str, b_layout: str) -> None:
    isa = FAST[-1]
    product = replace(KINDS["f32"], a_layout=a_layout, b_layout=b_layout)
    key, _ = step_of(product.graph, isa, 2)
    rows, columns = "rows/{}", "columns/{}"
    a = {"rows": rows.format(130), "columns": columns.format(43)}
    a |= {"wide rows": rows.format(135), "wide columns": columns.format(48)}
    b = {"rows": rows.format(523), "columns": columns.format(130)}
    b |= {"wide rows": rows.format(528), "wide columns": columns.format(135)}
    assert key == f"f32 x f32 43x523x130 a {a[a_layout]} b {b[b_layout]} {isa} 2 threads"
    assert tuned.KEY.fullmatch(key)


def test_a_tile_that_this_processor_lacks_leaves_the_choice_to_the_kernel() -> None:
    assert Blocks("f32_matmul_99x99_avx1024", 64).ints() == ()
    usable = {tile.name: tile.id for tile in native.tiles() if tile.available}
    for tile in native.tiles():
        expected = (usable[tile.name], 0, 0, 0, 0, 0, 0) if tile.name in usable else ()
        assert Blocks(tile.name).ints() == expected


def test_another_process_uses_what_was_kept(cache: Path) -> None:
    """And one with another cache directory does not."""
    isa = FAST[-1]
    product = replace(KINDS["f32"], m=40, n=50, k=60)
    key, _ = step_of(product.graph, isa, 1)
    gateway.keep_tuned({key: other_blocks(product, isa)})
    program = (
        "import json, sys, volta as vt; from volta.runtime import gateway; from volta.ir.graph import *\n"
        "from volta.dtypes import float32\n"
        f"with vt.runtime(isa={isa!r}, threads=1):\n"
        "    kinds = TensorType((40, 60), float32), TensorType((60, 50), float32)\n"
        "    plan = gateway.compile_op('matmul', kinds, {}).plan\n"
        "json.dump(plan.steps[0].ints, sys.stdout)"
    )

    def ints() -> list[int]:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        found: list[int] = json.loads(done.stdout)
        return found

    assert ints() == [1, *other_blocks(product, isa).ints()]
    gateway.clear_tuned()
    assert ints() == [1]


def numbers(*likely: int) -> st.SearchStrategy[int]:
    return st.sampled_from((0, *likely)) | st.integers(0, LARGEST_BLOCK + 1)


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_table_refuses_what_the_kernel_refuses_and_nothing_else(data: st.DataObject) -> None:
    """And the rest gives the bits of the reference (N1, N9, N10), whoever wrote the file."""
    isa, threads = data.draw(st.sampled_from(FAST)), data.draw(st.integers(1, 3))
    kind = KINDS[data.draw(st.sampled_from(tuple(KINDS)))]
    m, n, k = (data.draw(st.integers(1, most)) for most in (40, 150, 100))
    layouts = [data.draw(st.sampled_from(LAYOUTS)) for _ in "ab"]
    product = Product(kind.a, kind.b, m, n, k * max(1, kind.groups), kind.groups, *layouts)
    own = [tile.name for tile in native.tiles_of(product.a, isa)]
    others = [tile.name for tile in native.tiles() if tile.available]
    blocks = data.draw(
        st.builds(
            Blocks,
            tile=st.sampled_from(["", *own]) | st.sampled_from(others),
            kc=numbers(32, 64, 96, 1024).map(lambda kc: kc if kc % 5 == 0 else kc // 32 * 32),
            mc=numbers(1, 3, 14, 64, 168),
            nc=numbers(1, 8, 32, 256),
            ahead=numbers(1, 9, 1000),
            copies=st.integers(0, 16),
            threads=numbers(1, 2, 3),
        )
    )
    key, _ = step_of(product.graph, isa, threads)
    executable = gateway.compile_tuned(product.graph, isa, threads, {key: blocks})
    assert ints_of(executable.plan)[1:] == blocks.ints()
    if tuned.why_not(key, blocks) is None:
        assert_same_bits(executable.run(product.arrays())[0], product.expected(), f"{key} {blocks}")
    else:
        with pytest.raises(VerifyError, match="matmul"):
            executable.run(product.arrays())
