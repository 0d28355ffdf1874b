"""The text form of a graph: printed, and parsed back exactly.

    graph {
      %0 = input(name="x", shape=(2, 3), dtype="f32", role="input") : f32[2,3]
      %1 = constant(value=f32[](0.5)) : f32[]
      %2 = mul(%0, %1) : f32[2,3]
      return %2
      donate 0 -> %0
    }

A float is printed as the shortest decimal of its double, which gives back its bits; a NaN of a literal
by its bits, `nan:7fc00000`; literals of more than 16 elements as little-endian base64. Types are
printed for the reader and checked when parsed. A `#` starts a comment.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from volta.dtypes import BY_NAME
from volta.errors import UsageError, VoltaError
from volta.ir.graph import Attr, Graph, GraphBuilder, Node
from volta.ir.ops import OPS

T = TypeVar("T")
Array = npt.NDArray[np.generic]
LISTED = 16  # literals of at most so many elements are listed


# --- printing --------------------------------------------------------------------------------------
def format_graph(graph: Graph) -> str:
    """The text form; one line per node, nested bodies indented."""
    return "graph " + _block(graph, "") + "\n"


def _block(graph: Graph, indent: str) -> str:
    lines = [f"{indent}  {_line(node, indent + '  ')}" for node in graph.nodes]
    lines.append(f"{indent}  return {', '.join(_name(node) for node in graph.outputs)}".rstrip())
    for output, node in sorted(graph.donations.items()):
        lines.append(f"{indent}  donate {output} -> {_name(node)}")
    return "\n".join(["{", *lines, f"{indent}}}"])


def _name(node: Node) -> str:
    return f"%{node.id}"


def _line(node: Node, indent: str) -> str:
    kinds = OPS[node.op].attrs
    facts = [_name(source) for source in node.inputs]
    facts += [f"{name}={_value(kinds[name], node.attrs[name], indent)}" for name in kinds]
    types = ", ".join(map(str, node.types))
    return f"{_name(node)} = {node.op}({', '.join(facts)}) : {types}".rstrip()


def _value(kind: str, value: Any, indent: str) -> str:
    match kind:
        case "bool":
            return "true" if value else "false"
        case "str":
            return json.dumps(value)
        case "ints" | "strs":
            return f"({', '.join(map(json.dumps, value))})"
        case "array":
            return _literal(value)
        case "graph":
            return _block(value, indent)
        case _:
            return repr(value)


def _literal(value: Array) -> str:
    dtype = next(dtype.name for dtype in BY_NAME.values() if dtype.numpy == value.dtype)
    head = f"{dtype}[{','.join(map(str, value.shape))}]"
    if value.size > LISTED:
        data = value.astype(value.dtype.newbyteorder("<")).tobytes()
        return f'{head}("{base64.b64encode(data).decode("ascii")}")'
    return f"{head}({', '.join(map(_element, value.reshape(-1)))})"


def _element(value: np.generic) -> str:
    number = value.item()
    return f"nan:{value.view(np.uint32):08x}" if number != number else repr(number)


# --- parsing ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


_TOKENS = re.compile(
    r"""(?P<space>[ \t\r]+|\#[^\n]*) | (?P<newline>\n) | (?P<node>%\d+) | (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<nan>nan:[0-9a-f]{8}) | (?P<number>-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf|nan)(?![A-Za-z_0-9]))
    | (?P<word>[A-Za-z_][A-Za-z_0-9]*) | (?P<sign>->|[][(){}=,:])""",
    re.VERBOSE,
)


def parse_graph(text: str) -> Graph:
    """The graph of a text, or a UsageError that names the line and what was expected there."""
    parser = _Parser(text)
    parser.take("word", "graph")
    graph = parser.block()
    parser.take("end")
    return graph


class _Parser:
    """Recursive descent over tokens; nodes are made by a GraphBuilder, so a parsed graph is sound."""

    def __init__(self, text: str) -> None:
        self._tokens = list(self._tokenized(text))
        self._next = 0

    def _tokenized(self, text: str) -> Iterator[_Token]:
        line, position = 1, 0
        while position < len(text):
            found = _TOKENS.match(text, position)
            if found is None:
                self._refuse(line, text[position], "a node, a name, a value or a sign")
            kind = found.lastgroup or ""
            if kind == "newline":
                line += 1
            elif kind != "space":
                yield _Token(kind, found.group(), line)
            position = found.end()
        yield _Token("end", "the end", line)

    def _refuse(self, line: int, given: str, expected: str) -> NoReturn:
        raise UsageError(f"[text] line {line}: given {given}: expected {expected}")

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def take(self, kind: str, text: str | None = None) -> str:
        """The next token's text, if it is of this kind (and text)."""
        token = self._token
        if token.kind != kind or text not in (None, token.text):
            self._refuse(token.line, token.text, text or {"end": "the end"}.get(kind, f"a {kind}"))
        self._next += 1
        return token.text

    def at(self, kind: str, text: str | None = None) -> bool:
        return self._token.kind == kind and text in (None, self._token.text)

    def separated(self, item: Callable[[], T]) -> list[T]:
        """One item or more, with commas between them."""
        items = [item()]
        while self.at("sign", ","):
            self.take("sign")
            items.append(item())
        return items

    def listed(self, item: Callable[[], T], until: str) -> list[T]:
        """Items with commas between them, perhaps none, then the closing sign, which is taken."""
        items = [] if self.at("sign", until) else self.separated(item)
        self.take("sign", until)
        return items

    def block(self) -> Graph:
        """{ nodes, return, donations }"""
        builder, nodes = GraphBuilder(), list[Node]()
        self.take("sign", "{")
        while self.at("node"):
            nodes.append(self._statement(builder, nodes))
        self.take("word", "return")
        outputs = self.separated(lambda: self._operand(nodes)) if self.at("node") else []
        donations: dict[int, Node] = {}
        while self.at("word", "donate"):
            self.take("word")
            output = self._integer()
            self.take("sign", "->")
            donations[output] = self._operand(nodes)
        self.take("sign", "}")
        return builder.freeze(outputs, donations)

    def _statement(self, builder: GraphBuilder, nodes: list[Node]) -> Node:
        """%id = op(operands, attributes) : types"""
        line, label = self._token.line, self.take("node")
        if label != f"%{len(nodes)}":
            self._refuse(line, label, f"%{len(nodes)}")
        self.take("sign", "=")
        if self.at("word") and self._token.text not in OPS:
            self._refuse(line, self._token.text, "an operation")
        op = self.take("word")
        self.take("sign", "(")
        operands: list[Node] = []
        attrs: dict[str, Attr] = {}

        def fact() -> None:
            if self.at("node"):
                operands.append(self._operand(nodes))
            else:
                name = self.take("word")
                self.take("sign", "=")
                attrs[name] = self._attribute(op, name, line)

        self.listed(fact, ")")
        try:
            node = builder.add(op, operands, attrs)
        except VoltaError as error:
            raise UsageError(f"[text] line {line}: {error}") from error
        self._types(node)
        return node

    def _types(self, node: Node) -> None:
        """The printed types must be those that were inferred."""
        line = self._token.line
        self.take("sign", ":")
        given = self.separated(self._type) if self.at("word") else []
        expected = ", ".join(map(str, node.types))
        if ", ".join(given) != expected:
            self._refuse(line, f"type {', '.join(given) or 'none'}", expected or "none")

    def _type(self) -> str:
        dtype = self.take("word")
        self.take("sign", "[")
        return f"{dtype}[{','.join(map(str, self.listed(self._integer, ']')))}]"

    def _operand(self, nodes: list[Node]) -> Node:
        line, label = self._token.line, self.take("node")
        if int(label[1:]) >= len(nodes):
            self._refuse(line, label, "a node that was defined before")
        return nodes[int(label[1:])]

    # --- values
    def _attribute(self, op: str, name: str, line: int) -> Attr:
        kind = OPS[op].attrs.get(name)
        if kind is None:
            self._refuse(line, f"attribute {name}", f"one of {', '.join(OPS[op].attrs) or 'none'}")
        readers: Mapping[str, Callable[[], Attr]] = {
            "int": self._integer,
            "float": self._float,
            "bool": self._bool,
            "str": self._string,
            "ints": lambda: self._tuple(self._integer),
            "strs": lambda: self._tuple(self._string),
            "array": self._array,
            "graph": self.block,
        }
        return readers[kind]()

    def _tuple(self, item: Callable[[], Any]) -> tuple[Any, ...]:
        self.take("sign", "(")
        return tuple(self.listed(item, ")"))

    def _integer(self) -> int:
        line, text = self._token.line, self.take("number")
        if not re.fullmatch(r"-?\d+", text):
            self._refuse(line, text, "an integer")
        return int(text)

    def _float(self) -> float:
        return float(self.take("number"))

    def _bool(self) -> bool:
        line, text = self._token.line, self.take("word")
        if text not in ("true", "false"):
            self._refuse(line, text, "true or false")
        return text == "true"

    def _string(self) -> str:
        line, text = self._token.line, self.take("string")
        try:
            return str(json.loads(text))
        except json.JSONDecodeError:
            self._refuse(line, text, "a JSON string")

    def _array(self) -> Array:
        """f32[2](0.5, nan:7fc00000) or f32[100]("base64")"""
        line = self._token.line
        dtype, _, lengths = self._type().rstrip("]").partition("[")
        if dtype not in ("f32", "i32"):
            self._refuse(line, dtype, "f32 or i32")
        shape = tuple(map(int, filter(None, lengths.split(","))))
        self.take("sign", "(")
        numpy_dtype, count = np.dtype(BY_NAME[dtype].numpy), math.prod(shape)
        if self.at("string"):
            flat = self._decoded(numpy_dtype)
            self.take("sign", ")")
        else:
            flat = np.array(self.listed(lambda: self._bits(dtype), ")"), np.uint32).view(numpy_dtype)
        if flat.size != count:
            self._refuse(line, f"{flat.size} elements", str(count))
        return flat.reshape(shape)

    def _bits(self, dtype: str) -> int:
        """The 32 bits of one listed element."""
        if dtype == "f32" and self.at("nan"):
            return int(self.take("nan")[4:], 16)
        line = self._token.line
        number = self._float() if dtype == "f32" else self._integer()
        if dtype == "i32" and not -(2**31) <= number < 2**31:
            self._refuse(line, str(number), "a 32-bit integer")
        with np.errstate(over="ignore"):
            return int(np.array(number, np.dtype(BY_NAME[dtype].numpy)).view(np.uint32))

    def _decoded(self, dtype: np.dtype[Any]) -> Array:
        line, text = self._token.line, self._string()
        try:
            data = base64.b64decode(text, validate=True)
        except binascii.Error:
            self._refuse(line, text[:20], "base64")
        if len(data) % dtype.itemsize:
            self._refuse(line, f"{len(data)} bytes", f"a multiple of {dtype.itemsize}")
        decoded: Array = np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)
        return decoded
