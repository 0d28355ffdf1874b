"""In a process with the engine under judgement: computes calls under settings, and says what came out.

Reads one JSON request from standard input: calls [[op, index, seed]], settings [{isa, threads}] or "all",
keep: a file for the arrays of a single call. Writes one JSON answer: facts, and a sha256 per call and setting
over every bit of every result, where any NaN counts as the same NaN.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from gates import operations
from gates.operations import Call

THREADS = (1, 2, 3)


def main() -> None:
    request = json.load(sys.stdin)
    import volta as vt
    from volta.ir.ops import OPS
    from volta.runtime import gateway

    isas = list(gateway.cpu_info().isas)
    settings = request["settings"]
    if settings == "all":
        settings = [{"isa": isa, "threads": count} for isa in isas for count in THREADS]
    answers: list[list[str]] = []
    for op, index, seed in request["calls"]:
        if op not in OPS:
            answers.append([])
            continue
        chosen = operations.call(op, index, seed)
        one = []
        for setting in settings:
            with vt.runtime(**setting):
                try:
                    results = compute(chosen)
                except vt.VoltaError as error:
                    one.append(f"refused: {' '.join(str(error).split())}")
                    continue
            one.append(digest(results))
            if request.get("keep"):
                np.savez(request["keep"], *results)
        answers.append(one)
    json.dump({"ops": sorted(OPS), "isas": isas, "settings": settings, "answers": answers}, sys.stdout)


def compute(chosen: Call) -> list[npt.NDArray[Any]]:
    """The results of a call, on the current policy's target."""
    import volta as vt
    from volta.trace import apply_all

    tensors = [
        vt.asarray(array, dtype="bf16" if i in chosen.bf16 else "i8" if array.dtype == np.int8 else None)
        for i, array in enumerate(chosen.operands)
    ]
    if not chosen.turned:
        results = apply_all(chosen.op, *tensors, **chosen.attrs)
    else:

        def turned(*operands: vt.Tensor) -> tuple[vt.Tensor, ...]:
            views = list(operands)
            for i in chosen.turned:
                rank = len(views[i].shape)
                views[i] = vt.transpose(views[i], (*range(rank - 2), rank - 1, rank - 2))
            return apply_all(chosen.op, *views, **chosen.attrs)

        results = vt.compile(turned)(*tensors)
    return [
        np.asarray(one.astype("f32").numpy() if one.dtype.name == "bf16" else one.numpy()) for one in results
    ]


def digest(results: list[npt.NDArray[Any]]) -> str:
    content = hashlib.sha256()
    for array in results:
        values = np.ascontiguousarray(array)
        if values.dtype == np.float32:
            values = np.where(np.isnan(values), np.float32(np.nan), values)
        content.update(f"{values.shape} {values.dtype.str} ".encode() + values.tobytes())
    return content.hexdigest()


if __name__ == "__main__":
    main()
