"""The rules of a graph, one short function each, run over every graph that is built or rewritten.

Rules of the graph yield what they find; rules of a node give its defect or None, and each presupposes
the ones before it, so a node has one finding at most. Shapes and dtypes are checked by inference itself
(shapes.py), so that the two cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from volta.errors import VerifyError, VoltaError
from volta.ir import attributes
from volta.ir.graph import Graph, Node, TensorType
from volta.ir.ops import OPS

GraphRule: TypeAlias = Callable[[Graph], Iterator[str]]
NodeRule: TypeAlias = Callable[[Node], str | None]


class Finding(NamedTuple):
    """A rule and what breaks it."""

    rule: str
    message: str


def verify(graph: Graph) -> None:
    """Raises the first finding as a VerifyError."""
    for rule, message in _findings(graph):
        raise VerifyError(rule, message)


def findings(graph: Graph) -> list[Finding]:
    """Everything that breaks a rule: of the graph first, then of its nodes in order."""
    return list(_findings(graph))


def _findings(graph: Graph) -> Iterator[Finding]:
    for rule, check in GRAPH_RULES.items():
        for message in check(graph):
            yield Finding(rule, message)
    for node in graph.nodes:
        defects = ((rule, defect(node)) for rule, defect in NODE_RULES.items())
        found = next(((rule, message) for rule, message in defects if message is not None), None)
        if found is not None:
            yield Finding(found[0], f"{node}: {found[1]}")


def _listed(types: Iterable[TensorType]) -> str:
    return ", ".join(map(str, types)) or "nothing"


# --- rules of the graph ----------------------------------------------------------------------------
def single_assignment(graph: Graph) -> Iterator[str]:
    """A node is in the graph once, and its id is its position."""
    seen: set[Node] = set()
    for position, node in enumerate(graph.nodes):
        if node in seen:
            yield f"{node} is in the graph twice"
        elif node.id != position:
            yield f"{node} is at position {position}"
        seen.add(node)


def no_cycle(graph: Graph) -> Iterator[str]:
    """Following operands from a node never leads back to it."""
    done: set[Node] = set()
    for root in graph.nodes:
        path: dict[Node, Iterator[Node]] = {} if root in done else {root: iter(root.inputs)}
        while path:
            node, sources = next(reversed(path.items()))
            source = next(sources, None)
            if source is None:
                del path[node]
                done.add(node)
            elif source in path:
                yield f"{source} depends on itself through {node}"
            elif source not in done:
                path[source] = iter(source.inputs)


def defined_before_use(graph: Graph) -> Iterator[str]:
    """Operands come earlier in the same graph."""
    members, defined = set(graph.nodes), set[Node]()
    for node in graph.nodes:
        for source in node.inputs:
            if source not in members:
                yield f"{node} reads {source}, which is not in this graph"
            elif source not in defined:
                yield f"{node} reads {source}, which comes later"
        defined.add(node)


def inputs_listed(graph: Graph) -> Iterator[str]:
    """`inputs` are the input nodes in order, each with its own name."""
    expected = tuple(node for node in graph.nodes if node.op == "input")
    if graph.inputs != expected:
        yield f"inputs are {list(graph.inputs)}: expected {list(expected)}"
    names: set[object] = set()
    for node in expected:
        name = node.attrs.get("name")
        if name in names:
            yield f"two inputs have the name {name!r}"
        names.add(name)


def outputs_belong(graph: Graph) -> Iterator[str]:
    """Outputs are nodes of this graph with one result."""
    members = set(graph.nodes)
    for position, node in enumerate(graph.outputs):
        if node not in members:
            yield f"output {position} is {node}, which is not in this graph"
        elif len(node.types) != 1:
            yield f"output {position} is {node}, which has {len(node.types)} results: take one with `result`"


def donation(graph: Graph) -> Iterator[str]:
    """An output takes over the memory of one input of its type, which no other output takes or returns."""
    taken: dict[Node, int] = {}
    for position, node in sorted(graph.donations.items()):
        if not 0 <= position < len(graph.outputs):
            yield f"{node} is donated to output {position}: expected 0..{len(graph.outputs) - 1}"
            continue
        output = graph.outputs[position]
        if node not in graph.inputs:
            yield f"{node} is donated to output {position}: expected an input of this graph"
        if node.types != output.types:
            given, expected = _listed(node.types), _listed(output.types)
            yield f"{node} is {given}, donated to output {position}: expected {expected}"
        if node in taken:
            yield f"{node} is donated to outputs {taken[node]} and {position}: expected one"
        taken[node] = position
        for other, returned in enumerate(graph.outputs):
            if returned is node and other != position:
                yield f"{node} is donated to output {position} and returned as output {other}"


# --- rules of a node -------------------------------------------------------------------------------
def known_op(node: Node) -> str | None:
    """Its operation is a row of the table."""
    return None if node.op in OPS else "no operation of the table"


def arity(node: Node) -> str | None:
    """As many operands as the row says."""
    return _refusal(lambda: OPS[node.op].named(len(node.inputs)))


def attrs(node: Node) -> str | None:
    """The row's attributes, each of its kind."""
    return _refusal(lambda: attributes.check(node.op, OPS[node.op].attrs, node.attrs))


def result_index(node: Node) -> str | None:
    """A `result` picks one that its node has."""
    if node.op != "result":
        return None
    (source,), index = node.inputs, attributes.integer(node.attrs, "index")
    if 0 <= index < len(source.types):
        return None
    return f"takes result {index} of {source}: expected 0..{len(source.types) - 1}"


def single_result(node: Node) -> str | None:
    """Only `result` reads a node with several results."""
    for source in node.inputs:
        if node.op != "result" and len(source.types) != 1:
            return f"reads {source}, which has {len(source.types)} results: take one with `result`"
    return None


def fused_body(node: Node) -> str | None:
    """A body obeys every rule, takes the operands' types, has outputs and donates nothing."""
    if node.op != "fused":
        return None
    body = attributes.graph(node.attrs, "body")
    for rule, message in _findings(body):
        return f"in its body: [{rule}] {message}"
    if body.donations:
        return "its body donates inputs: expected none"
    if not body.outputs:
        return "its body has no outputs: expected at least one"
    given, taken = ([value.type for value in values] for values in (node.inputs, body.inputs))
    return None if given == taken else f"operands are {_listed(given)}: the body takes {_listed(taken)}"


def types(node: Node) -> str | None:
    """Shapes and dtypes are what inference gives."""
    operands = node.inputs[0].types if node.op == "result" else [source.type for source in node.inputs]
    inferred: list[TensorType] = []
    refusal = _refusal(lambda: inferred.extend(OPS[node.op].infer(operands, node.attrs)))
    if refusal is not None or tuple(inferred) == node.types:
        return refusal
    return f"is {_listed(node.types)}: expected {_listed(inferred)}"


def _refusal(action: Callable[[], object]) -> str | None:
    """The message of the error that the action ends with."""
    try:
        action()
    except VoltaError as error:
        return str(error)
    return None


GRAPH_RULES: Mapping[str, GraphRule] = MappingProxyType(
    {
        "single-assignment": single_assignment,
        "no-cycle": no_cycle,
        "defined-before-use": defined_before_use,
        "inputs-listed": inputs_listed,
        "outputs-belong": outputs_belong,
        "donation": donation,
    }
)
NODE_RULES: Mapping[str, NodeRule] = MappingProxyType(
    {
        "known-op": known_op,
        "arity": arity,
        "attrs": attrs,
        "result-index": result_index,
        "single-result": single_result,
        "fused-body": fused_body,
        "types": types,
    }
)
