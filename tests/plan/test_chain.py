"""Chains: whatever registers are reused and whatever memory is shared, every output gets its node's value.

A chain's instructions run here on symbols in a model of its memory: a register is a cell, and an output
that shares memory with an input is the same cell. The result must be the symbol of each output's node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from volta.dtypes import float32
from volta.ir.graph import GraphBuilder, Node
from volta.plan.chain import instructions
from volta.plan.steps import Instruction

Symbol = Any  # nested tuples: (op, operands..., immediates...)


@dataclass
class Chain:
    """Inputs with their registers, the nodes to compute, who wants what, which memory is shared."""

    sources: dict[Node, int]
    body: list[Node]
    outputs: list[tuple[Node, int]]
    shared: dict[int, int]
    operands: int  # outputs and inputs; registers from here on are temporaries


def evaluate(chain: Chain) -> dict[Node, Symbol]:
    """The symbol of every node, directly. Sources in one register are one value."""
    values: dict[Node, Symbol] = {node: ("register", number) for node, number in chain.sources.items()}
    for node in chain.body:
        factor = (node.attrs["factor"],) if node.op == "scale" else ()
        values[node] = (node.op, *(values[source] for source in node.inputs), *factor)
    return values


def run(chain: Chain, code: Sequence[Instruction], temporaries: int) -> dict[int, Symbol]:
    """The symbol that each register holds in the end; refuses what the C verifier refuses."""
    cells: dict[int, Symbol] = {number: ("register", number) for number in chain.sources.values()}
    overwritten: set[int] = set()  # inputs whose memory an output took over
    for step in code:
        assert not set(step.sources) & overwritten, f"{step} reads an input that was overwritten"
        assert set(step.sources) <= set(cells), f"{step} reads a register that nothing wrote"
        assert step.to not in chain.sources.values(), f"{step} writes an input"
        assert 0 <= step.to < chain.operands + temporaries
        operands = tuple(cells[source] for source in step.sources)
        cells[step.to] = operands[0] if step.op == "copy" else (step.op, *operands, *step.immediates)
        if step.to in chain.shared:
            overwritten.add(chain.shared[step.to])
    return cells


def check(chain: Chain) -> tuple[tuple[Instruction, ...], int]:
    code, temporaries = instructions(chain.body, chain.sources, chain.outputs, chain.shared, chain.operands)
    expected, cells = evaluate(chain), run(chain, code, temporaries)
    for node, register in chain.outputs:
        assert cells[register] == expected[node], f"output {register} is not {node}"
    return code, temporaries


def make(count: int) -> tuple[GraphBuilder, list[Node]]:
    build = GraphBuilder()
    return build, [build.input(f"x{i}", (4,), float32) for i in range(count)]


def chain_of(
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    body: Sequence[Node],
    shared: Mapping[int, int] | None = None,
) -> Chain:
    """Registers as the planner gives them: outputs first, then inputs. shared: output -> input number."""
    count = len(outputs)
    return Chain(
        {node: count + i for i, node in enumerate(inputs)},
        list(body),
        [(node, register) for register, node in enumerate(outputs)],
        {output: count + i for output, i in (shared or {}).items()},
        count + len(inputs),
    )


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """Any body over up to four inputs; outputs may repeat, be inputs, and share memory with any input."""
    build, inputs = make(draw(st.integers(1, 4)))
    values = list(inputs)
    for _ in range(draw(st.integers(0, 12))):
        op = draw(st.sampled_from(("neg", "exp", "add", "sub", "mul", "scale", "sgd")))
        count = {"add": 2, "sub": 2, "mul": 2, "sgd": 3}.get(op, 1)
        operands = [draw(st.sampled_from(values)) for _ in range(count)]
        attrs = {"factor": draw(st.sampled_from((0.5, 2.0)))} if op == "scale" else {}
        values.append(build.add(op, operands, attrs))
    outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4))
    places = draw(st.permutations(range(len(inputs))))
    taking = draw(st.lists(st.sampled_from(range(len(outputs))), unique=True, max_size=len(inputs)))
    chain = chain_of(inputs, outputs, values[len(inputs) :], dict(zip(taking, places, strict=False)))
    if len(inputs) > 1 and draw(st.booleans()):  # two values that lie in one place: one register
        chain.sources[inputs[1]] = chain.sources[inputs[0]]
        chain.shared = {o: r for o, r in chain.shared.items() if r in chain.sources.values()}
    return chain


@settings(max_examples=600, deadline=None, derandomize=True)
@given(chains())
def test_every_output_holds_its_node_whatever_memory_is_shared(chain: Chain) -> None:
    code, temporaries = check(chain)
    computed = [step for step in code if step.op != "copy"]
    assert [step.op for step in computed] == [node.op for node in chain.body], "each node runs once, in order"
    assert temporaries <= len(chain.body) + len(chain.outputs)


def test_a_long_chain_of_unary_operations_needs_one_temporary() -> None:
    build, (x,) = make(1)
    body = [x]
    for _ in range(50):
        body.append(build.add("neg", (body[-1],)))
    code, temporaries = check(chain_of([x], [body[-1]], body[1:]))
    assert (len(code), temporaries) == (50, 1)


def test_a_value_that_is_read_later_keeps_its_register() -> None:
    """a is read by the first and by the last operation: nothing between may take its place."""
    build, (x,) = make(1)
    a = build.add("exp", (x,))
    b = build.add("neg", (a,))
    c = build.add("neg", (b,))
    d = build.add("add", (a, c))
    _, temporaries = check(chain_of([x], [d], [a, b, c, d]))
    assert temporaries == 2


def test_an_output_in_its_last_readers_memory_is_written_at_once() -> None:
    build, (x, y) = make(2)
    total = build.add("add", (x, y))
    code, temporaries = check(chain_of([x, y], [total], [total], {0: 0}))
    assert code == (Instruction("add", 0, (1, 2)),)
    assert temporaries == 0


def test_an_output_in_memory_that_is_read_later_waits_in_a_temporary() -> None:
    build, (x,) = make(1)
    first = build.add("neg", (x,))
    second = build.add("exp", (x,))
    code, temporaries = check(chain_of([x], [first, second], [first, second], {0: 0}))
    assert code == (
        Instruction("neg", 3, (2,)),
        Instruction("exp", 1, (2,)),
        Instruction("copy", 0, (3,)),
    )
    assert temporaries == 1


def test_a_value_wanted_twice_is_computed_once_and_copied() -> None:
    build, (x,) = make(1)
    y = build.add("exp", (x,))
    code, _ = check(chain_of([x], [y, y], [y]))
    assert code == (Instruction("exp", 0, (2,)), Instruction("copy", 1, (0,)))


def test_an_output_that_later_operations_read_is_read_where_it_was_written() -> None:
    build, (x,) = make(1)
    y = build.add("exp", (x,))
    z = build.add("neg", (y,))
    code, temporaries = check(chain_of([x], [y, z], [y, z], {1: 0}))
    assert code == (Instruction("exp", 0, (2,)), Instruction("neg", 1, (0,)))
    assert temporaries == 0


def test_an_input_handed_through_is_copied_before_its_memory_is_taken() -> None:
    build, (x,) = make(1)
    y = build.add("neg", (x,))
    check(chain_of([x], [y, x], [y], {0: 0}))


def test_inputs_that_change_places_do_so() -> None:
    _, (x, y) = make(2)
    check(chain_of([x, y], [y, x], [], {0: 0, 1: 1}))
    code, temporaries = check(chain_of([x, y], [x, y], [], {0: 0, 1: 1}))
    assert code == (Instruction("copy", 0, (2,)), Instruction("copy", 1, (3,)))
    assert temporaries == 0


def test_values_in_one_register_are_all_read_before_it_is_taken() -> None:
    """x and y lie in one place: the first sum must not go there while the second still reads x."""
    build, (x, y) = make(2)
    first = build.add("add", (x, y))
    second = build.add("mul", (first, x))
    chain = chain_of([x, y], [first, second], [first, second])
    chain.sources[y] = chain.sources[x]
    chain.shared = {0: chain.sources[x]}
    check(chain)


def test_immediates_are_those_of_the_operation_in_binary32() -> None:
    build, (m, g) = make(2)
    moment = build.add("adam_m", (m, g), {"beta1": 0.9})
    code, _ = instructions([moment], {m: 1, g: 2}, [(moment, 0)], {}, 3)
    assert code[0].immediates == (0.8999999761581421, 0.10000002384185791)


def test_a_product_in_register_zero_is_replaced_after_its_last_reader() -> None:
    """A matmul's epilogue: operand 0 holds the product and becomes the last result."""
    build, (product, bias) = make(2)
    shifted = build.add("add", (product, bias))
    gated = build.add("mul", (shifted, product))
    chain = Chain({product: 0, bias: 3}, [shifted, gated], [(gated, 0)], {0: 0}, 4)
    code, temporaries = instructions(chain.body, chain.sources, chain.outputs, chain.shared, chain.operands)
    assert code == (Instruction("add", 4, (0, 3)), Instruction("mul", 0, (4, 0)))
    assert temporaries == 1
