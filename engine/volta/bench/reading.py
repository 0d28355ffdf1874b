"""Reads a result back, value by value: a comparison with NaN or with zero seconds would pass anything."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from volta.bench.report import SCHEMA, Measurement, Report, Timing
from volta.bench.statistics import Ratio
from volta.errors import VoltaError

Kind = TypeVar("Kind")
Number = TypeVar("Number", int, float)
Object = dict[str, Any]
KINDS: dict[type, str] = {dict: "an object", list: "a list", str: "a text", int: "a whole number"}
MACHINE: dict[str, type] = {"id": str, "cpu": str, "cpus": int, "isas": list, "features": list, "system": str}
MOST = 2**63 - 1
PARAMETERS = (str, int, bool)


class ReportError(VoltaError):
    """A result file that is missing, damaged or of another schema."""


def read_json(path: Path) -> Report:
    """Raises ReportError where the file is not such a result; it says which value is wrong."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ReportError(f"[bench] {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"[bench] {path} is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        given = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise ReportError(f"[bench] {path} has schema {_short(given)}: expected {SCHEMA!r}")
    try:
        return _report(document)
    except (ValueError, OverflowError) as error:
        raise ReportError(f"[bench] {path} is not a whole result: {error}") from error


def _report(document: Object) -> Report:
    machine: Object = _get(document, "machine", dict)
    for name, kind in MACHINE.items():
        value: Any = _get(machine, name, kind, "machine.")
        if kind is list:
            _texts(value, f"machine.{name}")
    return Report(
        suite=_get(document, "suite", str),
        command=_get(document, "command", str),
        version=_get(document, "version", str),
        machine=machine,
        method=_get(document, "method", dict),
        rooflines=tuple(_get(document, "rooflines", list)),
        measurements=tuple(
            _measurement(_is(one, f"measurements[{index}]", dict), f"measurements[{index}].")
            for index, one in enumerate(_get(document, "measurements", list))
        ),
        skipped=_texts(_get(document, "skipped", list), "skipped"),
    )


def _measurement(one: Object, where: str) -> Measurement:
    parameters = _get(one, "parameters", dict, where)
    for name, value in parameters.items():
        if type(value) not in PARAMETERS:
            raise ValueError(
                f"{where}parameters.{name} is {_short(value)}: expected a text or a whole number"
            )
    sides, ratios = _named(one, "sides", _timing, where), _named(one, "ratios", _ratio, where)
    for name in ("volta", *ratios):
        if name not in sides:
            raise ValueError(f"{where}sides.{name} is missing")
    return Measurement(
        name=_get(one, "name", str, where),
        parameters=parameters,
        threads=_count(one, "threads", where, 1),
        flops=_count(one, "flops", where),
        bytes=_count(one, "bytes", where),
        sides=sides,
        ratios=ratios,
        limit=_within(_finite(_any(one, "limit", where), f"{where}limit"), f"{where}limit"),
        bound=_get(one, "bound", str, where),
        figures={
            name: _finite(value, f"{where}figures.{name}")
            for name, value in _get(one, "figures", dict, where).items()
        },
    )


def _timing(one: Object, where: str) -> Timing:
    samples = _get(one, "seconds", list, where)
    if not samples:
        raise ValueError(f"{where}seconds is empty: expected at least one sample")
    low, median, high = _bounds(one, where)
    return Timing(
        description=_get(one, "description", str, where),
        seconds=tuple(_positive(value, f"{where}seconds") for value in samples),
        median=median,
        low=low,
        high=high,
        check=_get(one, "check", str, where),
    )


def _ratio(one: Object, where: str) -> Ratio:
    low, median, high = _bounds(one, where)
    confidence = _finite(_any(one, "confidence", where), f"{where}confidence")
    return Ratio(
        median,
        low,
        high,
        _within(confidence, f"{where}confidence", most=1),
        _count(one, "pairs", where, 1),
    )


def _bounds(one: Object, where: str) -> tuple[float, float, float]:
    low, median, high = (
        _positive(_any(one, name, where), f"{where}{name}") for name in ("low", "median", "high")
    )
    if not low <= median <= high:
        raise ValueError(f"{where}median is {median}: expected low {low} to high {high}")
    return low, median, high


def _named(one: Object, name: str, read: Callable[[Object, str], Kind], where: str) -> dict[str, Kind]:
    return {
        key: read(_is(value, f"{where}{name}.{key}", dict), f"{where}{name}.{key}.")
        for key, value in _get(one, name, dict, where).items()
    }


def _any(holder: Object, name: str, where: str = "") -> Any:
    if name not in holder:
        raise ValueError(f"{where}{name} is missing")
    return holder[name]


def _get(holder: Object, name: str, kind: type[Kind], where: str = "") -> Kind:
    return _is(_any(holder, name, where), f"{where}{name}", kind)


def _is(value: Any, where: str, kind: type[Kind]) -> Kind:
    if type(value) is not kind:  # a bool is no whole number
        raise ValueError(f"{where} is {_short(value)}: expected {KINDS[kind]}")
    return value


def _positive(value: Any, where: str) -> float:
    number = _finite(value, where)
    if number <= 0:
        raise ValueError(f"{where} is {_short(value)}: expected a number above 0")
    return number


def _finite(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{where} is {_short(value)}: expected a finite number")
    return float(value)


def _count(holder: Object, name: str, where: str, least: int = 0) -> int:
    return _within(_get(holder, name, int, where), f"{where}{name}", least, MOST)


def _texts(values: list[Any], where: str) -> tuple[str, ...]:
    return tuple(_is(value, where, str) for value in values)


def _within(value: Number, where: str, least: float = 0, most: float = math.inf) -> Number:
    if not least <= value <= most:
        raise ValueError(f"{where} is {_short(value)}: expected {least} to {most}")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
