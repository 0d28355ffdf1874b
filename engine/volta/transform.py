"""Function transformations: `compile` and `value_and_grad`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from volta import tree
from volta.dtypes import aligned_copy, float32
from volta.errors import GradientError, RunError, UsageError
from volta.ir.grad import gradient
from volta.ir.graph import Graph
from volta.plan.cache import PlanCache
from volta.runtime import gateway
from volta.runtime.policy import current
from volta.tensor import Array, Tensor, from_storage
from volta.trace import Trace, call, check_scalar_loss, innermost


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


class Traced:
    """A function's graph for one structure and one set of types: what `compile` keeps per shape."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        donate: Sequence[int] = (),
        roles: Sequence[str] | None = None,
    ) -> None:
        for position in donate:
            if not 0 <= position < len(args):
                raise UsageError(
                    f"[compile] donate has {position}: expected a position of {len(args)} arguments"
                )
        if roles is not None and len(roles) != len(args):
            raise UsageError(
                f"[compile] {len(roles)} roles were given: expected one for each of {len(args)} arguments"
            )
        trace = Trace()
        traced_args = []
        spans: list[tuple[int, int]] = []
        count = 0
        for position, arg in enumerate(args):
            leaves, structure = tree.flatten(arg, is_tensor)
            role = roles[position] if roles is not None else "state" if position in donate else "input"
            names = tree.paths(structure)
            inner = [
                trace.input(f"{position}{path}", leaf, role) for path, leaf in zip(names, leaves, strict=True)
            ]
            traced_args.append(tree.unflatten(structure, iter(inner)))
            spans.append((count, count + len(leaves)))
            count += len(leaves)
        try:
            result = fn(*traced_args)
        finally:
            trace.open = False
        leaves, self.structure = tree.flatten(result, is_tensor)
        outputs = [trace.lift(leaf) for leaf in leaves]
        donations = {}
        for position in donate:
            begin, _ = _output_span(result, position, args[position])
            first, last = spans[position]
            for offset in range(last - first):
                donations[begin + offset] = trace.builder.inputs[first + offset]
        taken = {node: output for output, node in donations.items()}
        for index, node in enumerate(outputs):
            if taken.get(node, index) != index:  # an input whose memory another output takes over
                outputs[index] = trace.builder.add("reshape", (node,), {"shape": node.shape})
        self.captured = trace.captured
        self.graph: Graph = trace.builder.freeze(outputs, donations)
        self.spans = spans


@dataclass(frozen=True)
class BoundCall:
    """A compiled function with its memory: write into `arguments`, call `run`, read `results`.

    Both are trees of arrays in the structure of the function's arguments and result; where an argument
    was donated, its arrays are those of the result. `run` is one call, without allocation.
    """

    executable: gateway.Executable
    session: gateway.Session
    arguments: Any
    results: Any
    graph: Graph

    def run(self) -> None:
        self.session.run()

    def refresh(self) -> None:
        """To be called after persistent arguments were written."""
        self.session.refresh()

    def run_traced(self) -> Any:
        """One run; when each thread began and ended each step, [threads, steps, 2], in seconds."""
        return self.session.run_traced()


class Compiled:
    """A function that runs as one planned program per structure and set of types."""

    def __init__(
        self, fn: Callable[..., Any], donate: Sequence[int] = (), roles: Sequence[str] | None = None
    ) -> None:
        self._fn = fn
        self._donate = tuple(dict.fromkeys(donate))
        self._roles = roles
        self._traced: PlanCache[Traced] = PlanCache(64)
        self.__doc__ = fn.__doc__
        self.__name__ = getattr(fn, "__name__", "compiled")

    def __call__(self, *args: Any) -> Any:
        leaves, _ = tree.flatten(args, is_tensor)
        if innermost(leaves) is not None:
            return self._fn(*args)  # inside another trace: part of its graph
        traced, executable = self._prepare(args)
        arrays = self._arrays(leaves, traced)
        try:
            results = executable.run(arrays)
        except RunError as error:  # what the program wrote before it stopped is lost, the rest is not
            written = executable.overwritten(error.step)
            self._give_away(leaves, traced, written)
            raise
        except KeyboardInterrupt:
            self._give_away(leaves, traced, set(range(len(leaves))))
            raise
        self._give_away(leaves, traced, set(range(len(leaves))))
        outputs = [
            from_storage(array, kind.dtype)
            for array, kind in zip(results, executable.output_types, strict=True)
        ]
        return tree.unflatten(traced.structure, iter(outputs))

    def bind(self, *args: Any, shared: Sequence[int] = (), persistent: Sequence[int] = ()) -> BoundCall:
        """Binds memory for these arguments once, to run many times. Donated tensors are given away; the
        others are copied, so that writing to `arguments` changes no Tensor, except those of the
        argument positions `shared`, which are only read.

        persistent: positions of arguments, such as weights, that stay as they are: what depends on them
        alone is computed here, once, and weights are packed as their kernels want them. Who writes to
        them nevertheless calls `refresh` before the next run.
        """
        for position in persistent:
            if not 0 <= position < len(args) or position in self._donate:
                raise UsageError(
                    f"[compile] persistent has {position}: expected a position of {len(args)} arguments "
                    "that is not donated"
                )
        traced, executable = self._prepare(args, persistent)
        leaves, structure = tree.flatten(args, is_tensor)
        arrays = self._arrays(leaves, traced)
        self._give_away(leaves, traced, set(range(len(leaves))))
        kept = {i for position in (*self._donate, *shared) for i in range(*traced.spans[position])}
        session = executable.bind(
            [
                aligned_copy(array) if i < len(leaves) and i not in kept else array
                for i, array in enumerate(arrays)
            ]
        )
        return BoundCall(
            executable,
            session,
            tree.unflatten(structure, iter(session.inputs[: len(leaves)])),
            tree.unflatten(traced.structure, iter(session.outputs)),
            traced.graph,
        )

    def lower(self, *args: Any) -> gateway.Executable:
        """The verified plan and program for arguments of these types, without running it."""
        return self._prepare(args)[1]

    def traced(self, *args: Any) -> Traced:
        """The graph for arguments of these types."""
        leaves, structure = tree.flatten(args, is_tensor)
        key = (structure, tuple(leaf.type for leaf in leaves))
        try:
            hash(key)
        except TypeError as error:
            raise UsageError(
                f"[compile] {error}: expected Tensors and hashable values as arguments"
            ) from None
        return self._traced.get_or_make(key, lambda: Traced(self._fn, args, self._donate, self._roles))

    def _arrays(self, leaves: Sequence[Tensor], traced: Traced) -> list[Array]:
        """The memory of the arguments and of what the function captured. Refuses donated memory that is
        given twice."""
        tensors = [*leaves, *traced.captured]
        arrays = [tensor.storage() for tensor in tensors]
        times = Counter(map(id, tensors))
        donated = [leaves[i] for position in self._donate for i in range(*traced.spans[position])]
        for tensor in donated:
            if times[id(tensor)] > 1:
                raise UsageError(
                    f"[compile] a {tensor.type} is donated and given once more: expected other memory"
                )
        return arrays

    def _give_away(self, leaves: Sequence[Tensor], traced: Traced, written: set[int]) -> None:
        """Marks the donated tensors among the leaves `written` as used up."""
        for position in self._donate:
            for index in range(*traced.spans[position]):
                if index in written:
                    leaves[index].donate()

    def _prepare(
        self, args: tuple[Any, ...], persistent: Sequence[int] = ()
    ) -> tuple[Traced, gateway.Executable]:
        traced = self.traced(*args)
        given = [i for position in persistent for i in range(*traced.spans[position])]
        count = len(traced.graph.inputs)
        captured = range(count - len(traced.captured), count)  # what fn closes over stays as it is
        return traced, gateway.compile(traced.graph, current(), frozenset([*given, *captured]))


def compile(
    fn: Callable[..., Any] | None = None, *, donate: Sequence[int] = (), roles: Sequence[str] | None = None
) -> Any:
    """Traces `fn` once per structure and set of types into one verified plan, run by one call.

    fn takes and gives Tensors in nested dicts, lists and tuples; anything else in its arguments is
    part of the structure and must be hashable. donate: positions of arguments whose memory the
    results at the same positions take over (`fn(state, x) -> (new_state, loss)` with donate=(0,)); a
    donated tensor can't be used afterwards. Usable as a decorator. Tensors that fn closes over are
    taken at the first trace: give what changes as an argument.
    """
    if fn is None:
        return lambda function: Compiled(function, donate, roles)
    return Compiled(fn, donate, roles)


def value_and_grad(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives (value, gradients) of the scalar that `fn` returns.

    Gradients have the structure of the arguments `argnums` (a tuple of them for a sequence). With
    has_aux, fn returns (loss, aux) and the result is ((loss, aux), gradients).
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def wrapped(*args: Any) -> Any:
        leaves, _ = tree.flatten(args, is_tensor)
        for number in numbers:
            if not -len(args) <= number < len(args):
                raise UsageError(
                    f"[value_and_grad] argnums has {number}: expected a position of {len(args)} arguments"
                )
            if tree.has_statics(tree.flatten(args[number], is_tensor)[1]):
                raise GradientError(
                    f"[value_and_grad] argument {number} holds more than Tensors: expected Tensors alone "
                    "(vt.asarray makes one of numbers)"
                )

        def loss_first(*inner: Any) -> Any:
            value = fn(*inner)
            if has_aux and not (isinstance(value, tuple) and len(value) == 2):
                raise UsageError(
                    f"[value_and_grad] the function gave {type(value).__name__}: expected (loss, aux)"
                )
            loss, aux = value if has_aux else (value, None)
            return check_scalar_loss(loss), aux

        traced = Traced(loss_first, args)
        wrt, structures = [], []
        for number in numbers:
            first, last = traced.spans[number]
            wrt += list(traced.graph.inputs[first:last])
            structures.append(tree.flatten(args[number], is_tensor)[1])
        for node in wrt:
            if node.dtype is not float32:
                raise GradientError(f"[value_and_grad] {node.attrs['name']} is {node.dtype}: expected f32")
        results = iter(call(gradient(traced.graph, 0, wrt), [*leaves, *traced.captured]))
        value, aux = tree.unflatten(traced.structure, results)
        grads = tuple(tree.unflatten(structure, results) for structure in structures)
        return (value, aux) if has_aux else value, grads[0] if isinstance(argnums, int) else grads

    return wrapped


def grad(fn: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """As value_and_grad, but gives the gradients alone."""
    both = value_and_grad(fn, argnums)
    return lambda *args: both(*args)[1]


def _output_span(result: Any, position: int, argument: Any) -> tuple[int, int]:
    """Where the leaves of result[position] start and end among all leaves of the result."""
    if not isinstance(result, tuple) or position >= len(result):
        raise UsageError(
            f"[compile] donate has {position}: expected the function to give a tuple with that position"
        )
    begin = len(tree.flatten(result[:position], is_tensor)[0])
    leaves, structure = tree.flatten(result[position], is_tensor)
    given, expected = tree.flatten(argument, is_tensor)
    if structure != expected or [leaf.type for leaf in leaves] != [leaf.type for leaf in given]:
        raise UsageError(
            f"[compile] result {position} differs in structure or types from the argument donated to it"
        )
    return begin, begin + len(leaves)
