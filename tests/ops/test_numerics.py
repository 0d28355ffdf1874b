"""governance/numerics.md, F9: what each operation makes of NaN, infinities, zeros and the ends of the range.

Every row of the table there is run on every instruction set of this processor, and every cell is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from tests.ops.parity import isas

import volta as vt
from volta.dtypes import bfloat16_from_float32, float32_from_bfloat16
from volta.errors import NotFiniteError
from volta.ir.graph import GraphBuilder
from volta.ir.ops import OPS
from volta.runtime import gateway
from volta.tensor import from_storage
from volta.trace import apply_all

Array: TypeAlias = npt.NDArray[Any]
Place: TypeAlias = tuple[int, ...]

TABLE = Path(__file__).parents[2] / "governance" / "numerics.md"
HEADER = ("operation", "of", "with", "NaN", "+inf", "-inf", "+0", "-0", "largest", "least")
COLUMNS = HEADER[3:]
NO_ROW = {"input", "constant", "result", "fused"}  # nothing runs, or what runs has rows of its own
NO_FLOATS = "."  # as operand and cells: the operation takes integers alone

# the bits of each column's numbers: NaN quiet, negative with a payload, signalling
F32 = {
    "NaN": (0x7FC00000, 0xFFC00001, 0x7F800001),
    "+inf": (0x7F800000,),
    "-inf": (0xFF800000,),
    "+0": (0x00000000,),
    "-0": (0x80000000,),
    "largest": (0x7F7FFFFF,),
    "least": (0x00000001,),
}
BF16 = {
    "NaN": (0x7FC0, 0xFFC1, 0x7F81),
    "+inf": (0x7F80,),
    "-inf": (0xFF80,),
    "+0": (0x0000,),
    "-0": (0x8000,),
    "largest": (0x7F7F,),
    "least": (0x0001,),
}


# --- the table ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Row:
    """operand: that holds a column's number; result: which one of several; settings: what is not 1;
    dtypes: of operands that are not f32."""

    line: int
    op: str
    operand: str
    result: str
    settings: Mapping[str, str]
    dtypes: Mapping[str, str]
    cells: Mapping[str, str]


def table(text: str) -> Iterator[Row]:
    """The rows below each header of the form above."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        parts = [part.strip() for part in line.strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif tuple(parts) == HEADER:
            inside = True
        elif inside and set(line) - set("|-: "):
            op, of, given, *cells = parts
            operand, _, result = (part.strip() for part in of.partition("->"))
            told = given.split(", ") if given else []
            yield Row(
                number,
                op,
                operand,
                result,
                dict(one.split(" = ") for one in told if " = " in one),
                dict(one.split(" ") for one in told if " = " not in one),
                dict(zip(COLUMNS, cells, strict=True)),
            )


ROWS = tuple(table(TABLE.read_text()))


# --- operands -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    """shapes: of the fields, which hold floating-point numbers; ints: the other operands; packs: operands
    whose last axis is several fields; results: name -> (which result, which place of its last axis)."""

    shapes: Mapping[str, Place]
    ints: Mapping[str, Array] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    packs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    results: Mapping[str, tuple[int, int | None]] = field(default_factory=lambda: {"": (0, None)})


def i32(*values: Any) -> Array:
    return np.array(values, np.int32)


PLANE = (3, 37)  # 111 elements: whole vectors and a tail of every width; rows of 37 go round the 32 lanes
ROW, COLUMN = PLANE[1:], PLANE[:1]
RNG = i32(1, 2, 3)
AXIS_1 = {"axes": (1,), "keepdims": False}
AXIS_0 = {"axes": (0,), "keepdims": False}
IGNORE = {"ignore_index": -100}
TARGETS = {"targets": i32(1, -100, 36)}
POSITIONS = {"position": i32(3, 32)}  # of 37 keys, some of them hidden where it is causal
HALVES = {"": (0, None), "second": (1, None)}


def heads(count: int, queries: int) -> dict[str, Place]:
    """Operands of attention: 2 batch rows, one key head, width 18."""
    q, k = (2, count, queries, 18), (2, 1, 37, 18)
    return {"q": q, "k": k, "v": k}


def heads_grad(count: int, queries: int) -> dict[str, Place]:
    q = (2, count, queries, 18)
    return {**heads(count, queries), "o": q, "m": q[:-1], "i": q[:-1], "g": q}


# Several cases where kernels differ in shape: few rows and many, one query and several, hidden keys.
CASES: Mapping[str, Sequence[Case]] = {
    "reshape": [Case({"x": PLANE}, attrs={"shape": (37, 3)})],
    "transpose": [Case({"x": PLANE}, attrs={"axes": (1, 0)})],
    "slice": [Case({"x": PLANE}, attrs={"start": (0, 0), "stop": PLANE, "step": (2, 3)})],
    "broadcast_to": [Case({"x": (1, 37)}, attrs={"shape": PLANE})],
    "split": [Case({"x": PLANE}, attrs={"sizes": (20, 17), "axis": 1}, results=HALVES)],
    "concat": [Case({"x0": PLANE, "x1": PLANE}, attrs={"axis": 1})],
    "pad": [Case({"x": PLANE}, attrs={"low": (1, 2), "high": (0, 5)})],
    "cast": [Case({"x": PLANE}, attrs={"dtype": "f32"})],
    "matmul": [
        *(Case({"a": (rows, 37), "b": (37, 35)}) for rows in (1, 3, 9)),
        Case({"a": (2, 5, 70), "b": (2, 70, 6)}),
    ],
    "quantized_matmul": [
        Case({"a": (rows, 40), "scale": (2, 35)}, {"w": np.ones((40, 35), np.int8)}) for rows in (1, 3, 9)
    ],
    "quantize": [Case({"x": (3, 74)}, {}, {"groups": 2}, {}, {"q": (0, None), "scale": (1, None)})],
    **{
        name: [Case({"x": PLANE}, attrs=AXIS_1), Case({"x": PLANE}, attrs=AXIS_0)]
        for name in ("sum", "mean", "max", "sum_squares")
    },
    "argmax": [Case({"x": PLANE}, attrs={"axis": 1, "keepdims": False})],
    "softmax": [Case({"x": PLANE}), Case({"x": (2, 1100)})],
    "softmax_grad": [Case({"y": PLANE, "g": PLANE})],
    "log_softmax": [Case({"x": PLANE}), Case({"x": (2, 1100)})],
    "log_softmax_grad": [Case({"y": PLANE, "g": PLANE})],
    "cross_entropy": [Case({"logits": PLANE}, TARGETS, IGNORE)],
    "cross_entropy_grad": [Case({"logits": PLANE, "g": COLUMN}, TARGETS, IGNORE)],
    "count_valid": [Case({}, TARGETS, IGNORE)],
    "layer_norm": [
        Case({"x": PLANE, "w": ROW, "b": ROW}, results={"y": (0, None), "mean": (1, 0), "rstd": (1, 1)})
    ],
    "layer_norm_grad": [
        Case(
            {"x": PLANE, "mean": COLUMN, "rstd": COLUMN, "w": ROW, "g": PLANE},
            packs={"stats": ("mean", "rstd")},
            results={"dx": (0, None), "dw": (1, None), "db": (2, None)},
        )
    ],
    "rms_norm": [Case({"x": PLANE, "w": ROW}, results={"y": (0, None), "r": (1, 0)})],
    "rms_norm_grad": [
        Case(
            {"x": PLANE, "r": COLUMN, "w": ROW, "g": PLANE},
            packs={"stats": ("r",)},
            results={"dx": (0, None), "dw": (1, None)},
        )
    ],
    "embedding": [Case({"table": PLANE}, {"indices": i32(2, 0, 2, 1)})],
    "embedding_grad": [Case({"g": (5, 37)}, {"indices": i32(2, 0, 2, 3, 3)}, {"rows": 4})],
    "gather": [Case({"x": PLANE}, {"index": i32([0, 5], [18, 18], [1, 36])}, {"axis": 1})],
    "gather_grad": [Case({"g": (3, 2)}, {"index": i32([5, 5], [36, 36], [0, 0])}, {"axis": 1, "size": 37})],
    "rotary": [
        Case(
            {"x": (2, 3, 4, 36), "cos": (9, 18), "sin": (9, 18)},
            {"position": i32(0, 5)},
            {"inverse": inverse},
        )
        for inverse in (False, True)
    ],
    "attention": [
        Case(heads(*each), POSITIONS, {"causal": causal}, {}, {"o": (0, None), "m": (1, 0), "i": (1, 1)})
        for each in ((2, 5), (3, 1))
        for causal in (False, True)
    ],
    "attention_grad": [
        Case(
            heads_grad(2, 5),
            POSITIONS,
            {"causal": causal},
            {"stats": ("m", "i")},
            {"dq": (0, None), "dk": (1, None), "dv": (2, None)},
        )
        for causal in (False, True)
    ],
    "cache_update": [Case({"cache": (2, 2, 7, 18), "new": (2, 2, 3, 18)}, {"position": i32(0, 4)})],
    "dropout": [Case({"x": PLANE}, {"rng": RNG}, {"stream": 4})],
    "random_uniform": [Case({}, {"rng": RNG}, {"shape": (7,), "stream": 1})],
    "random_normal": [Case({}, {"rng": RNG}, {"shape": (7,), "stream": 1})],
    "sample": [
        Case(
            {"logits": PLANE, **dict.fromkeys(("temperature", "top_p", "penalty", "min_p"), COLUMN)},
            {
                "seen": np.tile(i32(1, *[0] * 35, 1), (3, 1)),
                "rng": np.tile(i32(1, 2, 3, 4), (3, 1)),
                "top_k": i32(0, 0, 0),
            },
            packs={"settings": ("temperature", "top_p", "penalty", "min_p")},
        )
    ],
    "mark_seen": [Case({}, {"seen": i32([0, 0]), "tokens": i32([1]), "lengths": i32(1)})],
    "check_finite": [Case({"x": PLANE}, attrs={"names": ("all",)})],
}


def cases(op: str) -> Sequence[Case]:
    row = OPS[op]
    return [Case({name: PLANE for name, _ in row.operands})] if row.kind == "elementwise" else CASES[op]


def names(op: str) -> list[str]:
    """Of the operands, in order."""
    return [name for name, _ in OPS[op].named(2 if op == "concat" else len(OPS[op].operands))]


def number(text: str) -> np.float32:
    """`+inf`, `-0`, `0.5`: the nearest f32."""
    return np.float32({"largest": "3.4028235e38", "least": "1e-45"}.get(text, text))


def filled(row: Row, case: Case) -> dict[str, Array]:
    """The fields: 1 everywhere, or what the row says; `+-1` are ones of alternating sign."""
    found = {}
    for name, shape in case.shapes.items():
        text = row.settings.get(name, "1")
        found[name] = np.full(shape, 1 if text == "+-1" else number(text), np.float32)
        if text == "+-1":
            found[name][..., 1::2] = -1
    return found


def attributes(row: Row, case: Case) -> dict[str, Any]:
    """What the row or the case says, and 1 for any other number."""
    found: dict[str, Any] = {}
    for name, kind in OPS[row.op].attrs.items():
        if name in row.settings:
            text = row.settings[name]
            found[name] = float(number(text)) if kind == "float" else text
        else:
            found[name] = case.attrs.get(name, 1.0)
    return found


def operands(row: Row, case: Case, fields: Mapping[str, Array], place: Place) -> list[Array]:
    """Fields and integers in the order of the signature. targets: `index` is the place itself in every row
    that counts, `other` another one."""
    found = []
    for name in names(row.op):
        if name in case.packs:
            found.append(np.stack([fields[part] for part in case.packs[name]], axis=-1))
        elif name in fields:
            found.append(fields[name])
        elif name in row.settings:
            wanted = place[-1] if row.settings[name] == "index" else (place[-1] + 1) % PLANE[1]
            found.append(np.where(case.ints[name] < 0, case.ints[name], np.int32(wanted)))
        else:
            found.append(case.ints[name])
    return found


def tensors(row: Row, arrays: Sequence[Array]) -> list[vt.Tensor]:
    """In the row's dtypes, else the signature's; bf16 may come as its bits."""
    found = []
    signature = OPS[row.op].named(len(arrays))
    for (name, expected), array in zip(signature, arrays, strict=True):
        dtype = row.dtypes.get(name, "f32" if expected == "any" else expected)
        if dtype == "bf16":
            bits = array if array.dtype == np.uint16 else bfloat16_from_float32(array)
            found.append(from_storage(bits, vt.bfloat16))
        else:
            found.append(vt.asarray(array.astype(np.int8) if dtype == "i8" else array, dtype))
    return found


def chosen(row: Row, case: Case, arrays: Sequence[Array]) -> Array:
    """The result that the row speaks of."""
    which, place = case.results[row.result]
    found = arrays[which]
    return found if place is None else np.asarray(found[..., place])


def run(row: Row, case: Case, fields: Mapping[str, Array], place: Place) -> Array:
    made = apply_all(row.op, *tensors(row, operands(row, case, fields, place)), **attributes(row, case))
    return chosen(row, case, [one.numpy() for one in made])


def places(shape: Place) -> list[Place]:
    """The first element, one in the middle, the last."""
    count = int(np.prod(shape))
    return [
        tuple(int(i) for i in np.unravel_index(flat, shape))
        for flat in dict.fromkeys((0, count // 2, count - 1))
    ]


def reach(row: Row, case: Case, place: Place) -> Array:
    """Which elements of the result depend on one element of the operand: those of the float64 reference whose
    bits differ, among ordinary numbers and with 0.5 for attributes, when it becomes 100 or -100. Of a sampled
    token, its row."""
    random = np.random.default_rng(7)
    fields = {name: random.uniform(0.5, 1.5, shape) for name, shape in case.shapes.items()}
    kinds = OPS[row.op].attrs
    attrs = {name: 0.5 if kinds[name] == "float" else value for name, value in attributes(row, case).items()}

    def reference() -> Array:
        arrays = OPS[row.op].evaluate(operands(row, case, fields, place), attrs)
        found: Array = np.array(chosen(row, case, arrays), np.float64)
        return found

    before = reference()
    touched: Array = np.zeros(before.shape, bool)
    if row.op == "sample":
        touched[place[0]] = True
        return touched
    for value in (100.0, -100.0):
        fields[row.operand][place] = value
        touched |= before.view(np.uint64) != reference().view(np.uint64)
    return touched


# --- cells ----------------------------------------------------------------------------------------
def same(given: Array, expected: Any) -> bool:
    """In every bit; NaN is NaN."""
    if given.dtype.kind != "f":
        return bool((given == expected).all())
    wanted = np.broadcast_to(np.asarray(expected, np.float32), given.shape)
    equal = np.ascontiguousarray(given).view(np.uint32) == np.ascontiguousarray(wanted).view(np.uint32)
    return bool((equal | (np.isnan(given) & np.isnan(wanted))).all())


def holds(word: str, given: Array, x: np.float32, place: Place, fill: np.float32) -> bool:
    """Whether every one of some elements is what a word says. x: the number given; fill: the row's others."""
    if " or " in word:
        either = word.split(" or ")
        return all(any(holds(one, each, x, place, fill) for one in either) for each in given.reshape(-1, 1))
    if word == "finite":
        return bool(np.isfinite(given).all())
    if word == "inf":
        return bool(np.isinf(given).all())
    if word in ("x", "-x"):
        return same(given, x if word == "x" else np.float32(-x))
    if word == "first":
        return same(given, x if place[-1] == 0 else fill)
    if word in ("index", "another"):
        return bool(((given == place[-1]) == (word == "index")).all())
    if word == "other":
        return bool((given == (place[-1] == 0)).all())
    return same(given, number(word) if given.dtype.kind == "f" or not word.isdigit() else np.int32(word))


def here(row: Row, case: Case, place: Place, shape: Place) -> Array:
    """The element in the operand's place; where the result has other axes, those in its column."""
    mask = np.zeros(shape, bool)
    if shape == case.shapes[row.operand]:
        mask[place] = True
    elif shape[-1:] == case.shapes[row.operand][-1:]:
        mask[..., place[-1]] = True
    return mask


def parts(cell: str, mask: Array, own: Array) -> list[tuple[str, Array]]:
    """`A` of all that the element reaches; `A here, B` of its own place and of the rest."""
    word, _, rest = cell.partition(" here, ")
    return [(word, mask & own), (rest, mask & ~own)] if rest else [(word, mask)]


def special(row: Row, field_: Array, place: Place, bits: int) -> tuple[Array, Any]:
    """The field with a number of these bits in one place, and that number."""
    if row.dtypes.get(row.operand) == "bf16":
        changed = bfloat16_from_float32(field_)
        changed[place] = bits
        return changed, float32_from_bfloat16(np.array([bits], np.uint16))[0]
    changed = field_.copy()
    changed.view(np.uint32)[place] = bits
    return changed, np.array([bits], np.uint32).view(np.float32)[0]


def wrong(row: Row, case: Case, place: Place, mask: Array, isa: str) -> Iterator[str]:
    """What the engine gives otherwise than the row says, for one place of the operand. mask: its reach."""
    fields = filled(row, case)
    plain = run(row, case, fields, place)
    own = here(row, case, place, plain.shape)
    patterns = BF16 if row.dtypes.get(row.operand) == "bf16" else F32
    for column, cell in row.cells.items():
        for bits in patterns[column]:
            where = f"line {row.line}, {row.op} of {row.operand}{list(place)} = {column} ({bits:#x}) on {isa}"
            changed, x = special(row, fields[row.operand], place, bits)
            try:
                got = run(row, case, {**fields, row.operand: changed}, place)
            except NotFiniteError:
                if cell != "error":
                    yield f"{where}: NotFiniteError, the table says {cell}"
                continue
            if not same(got[~mask], plain[~mask]):
                yield f"{where}: elements that do not depend on it have changed"
            fill = number("1") if row.settings.get(row.operand) == "+-1" else fields[row.operand].flat[0]
            for word, part in parts(cell, mask, own):
                empty = mask.any() and not part.any()  # `here` where there is no such place
                if empty or word == "error" or not holds(word, got[part], x, place, fill):
                    yield f"{where}: {got[part].reshape(-1)[:4]}, the table says {cell}"


# --- the tests ------------------------------------------------------------------------------------
RUNNABLE = sorted(set(OPS) - NO_ROW)


def test_every_operation_has_a_row_and_no_row_is_stale() -> None:
    assert sorted({row.op for row in ROWS}) == RUNNABLE
    assert set(OPS) > NO_ROW


@pytest.mark.parametrize("op", RUNNABLE)
def test_rows_name_every_operand_that_holds_numbers(op: str) -> None:
    """An operation without any has the row of `.`; no row names what the operation does not have."""
    rows = [row for row in ROWS if row.op == op]
    given = {row.operand for row in rows}
    assert given == (set(cases(op)[0].shapes) or {NO_FLOATS})
    if given == {NO_FLOATS}:
        assert {cell for row in rows for cell in row.cells.values()} == {NO_FLOATS}
        assert all(dtype.startswith("i") for _, dtype in OPS[op].operands)
    elif len(cases(op)[0].results) > 1:
        assert {row.result for row in rows} == set(cases(op)[0].results)
    for row in rows:
        assert set(row.settings) <= {*cases(op)[0].shapes, *OPS[op].attrs, *cases(op)[0].ints}, row
        assert set(row.dtypes) <= set(names(op)), row


@pytest.mark.parametrize("op", [op for op in RUNNABLE if cases(op)[0].shapes])
def test_every_cell_is_what_the_engine_gives(op: str) -> None:
    """On every instruction set, in the first, a middle and the last place of the operand."""
    found: list[str] = []
    for row in (row for row in ROWS if row.op == op):
        reached = 0
        for case in cases(op):
            for place in places(case.shapes[row.operand]):
                mask = reach(row, case, place)
                reached += int(mask.sum())
                for isa in isas():
                    with vt.runtime(isa=isa, threads=1):
                        found += wrong(row, case, place, mask, isa)
        assert reached, f"line {row.line}: no element of the result depends on the operand"
    assert not found, "\n".join(found[:20])


def test_what_dropout_drops_is_zero_whatever_it_was() -> None:
    """F2: NaN and infinities too; the rest is kept."""
    ones = apply_all("dropout", vt.ones(PLANE), vt.asarray(RNG), p=0.5, stream=4)[0].numpy()
    for value in (np.nan, np.inf, -np.inf, -1.0):
        for isa in isas():
            with vt.runtime(isa=isa, threads=1):
                x = vt.asarray(np.full(PLANE, value, np.float32))
                got = apply_all("dropout", x, vt.asarray(RNG), p=0.5, stream=4)[0].numpy()
            assert same(got[ones == 0], np.float32(0))
            assert same(got[ones != 0], np.float32(value * 2))
    assert 0 < (ones == 0).sum() < ones.size


def test_a_contraction_is_minus_zero_only_where_a_product_was_too_small() -> None:
    """F5: of zeros, and of numbers that cancel, it is +0."""
    rows = np.array([[1e-30, -0.0], [-0.0, -0.0], [1, 1]], np.float32)
    columns = np.array([[-1e-30, 0, 2], [0, -0.0, -2]], np.float32)
    for isa in isas():
        with vt.runtime(isa=isa, threads=1):
            got = vt.matmul(vt.asarray(rows), vt.asarray(columns)).numpy()
        assert np.signbit(got[:2]).tolist() == [[True, False, False], [False, False, False]]
        assert same(got[2, 1:], np.float32(0))


FOLDED = sorted(name for name, op in OPS.items() if op.exact and op.kind == "elementwise")


@pytest.mark.parametrize("op", FOLDED)
def test_what_is_folded_before_a_run_has_the_bits_of_the_run(op: str) -> None:
    """F7: every pair of the columns' numbers, as literals and as inputs."""
    specials = np.array([bits for each in F32.values() for bits in each], np.uint32).view(np.float32)
    numbers = np.append(specials, np.array([1, -1, 0.5], np.float32))
    grid = np.meshgrid(*[numbers] * len(names(op)))
    attrs: Any = dict.fromkeys(OPS[op].attrs, 0.5)
    builder = GraphBuilder()
    literals = [builder.constant(np.ascontiguousarray(each, np.float32)) for each in grid]
    graph = builder.freeze(builder.results(op, literals, attrs))
    assert not gateway.plan(graph).steps or gateway.plan(graph).steps[0].kernel == "copy"
    (folded,) = gateway.compile(graph).run([])
    for isa in isas():
        with vt.runtime(isa=isa, threads=1):
            (ran,) = apply_all(op, *map(vt.asarray, grid), **attrs)
        assert same(folded, ran.numpy())
