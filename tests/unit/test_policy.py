"""The runtime policy: explicit, nested, from the environment; never a fallback."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

import volta as vt
from volta.backends.cpu import native
from volta.backends.cpu.backend import CpuBackend
from volta.errors import DeviceError, UsageError
from volta.runtime import gateway
from volta.runtime.policy import MOST_THREADS, Policy, current, from_environment, runtime

VARIABLES = ("VOLTA_DEVICE", "VOLTA_NUM_THREADS", "VOLTA_ISA", "VOLTA_DETERMINISM")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


# --- values ------------------------------------------------------------------------------------------


def test_the_default_is_auto_all_threads_and_strict() -> None:
    assert current() == Policy() == Policy("auto", 0, "auto", "strict", None, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"device": "gpu"}, r"\[runtime\] device is 'gpu': expected one of auto, cpu, opencl, cuda"),
        ({"device": 1}, r"\[runtime\] device is 1: expected one of"),
        ({"isa": "sse"}, r"\[runtime\] isa is 'sse': expected one of auto, ref, avx2, avx512, amx"),
        (
            {"determinism": "loose"},
            r"\[runtime\] determinism is 'loose': expected one of strict, balanced, fast",
        ),
        ({"threads": -1}, r"\[runtime\] threads is -1: expected 0 \(all\) to 256"),
        ({"threads": MOST_THREADS + 1}, r"\[runtime\] threads is 257"),
        ({"threads": 1.5}, r"\[runtime\] threads is 1\.5"),
        ({"threads": "2"}, r"\[runtime\] threads is '2'"),
        ({"max_bytes": -1}, r"\[runtime\] max_bytes is -1: expected a number of bytes"),
    ],
)
def test_values_that_mean_nothing_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Policy(**given)
    with pytest.raises(UsageError, match=message), runtime(**given):
        pass


def test_the_most_threads_are_what_the_kernels_know() -> None:
    _, lib = native.library()
    assert lib.VOLTA_MAX_THREADS == MOST_THREADS
    x = vt.asarray([1.0])
    with runtime(threads=MOST_THREADS):
        gateway.plan(vt.compile(lambda x: x + 1).traced(x).graph)


# --- nesting -----------------------------------------------------------------------------------------


def test_what_is_not_given_stays_as_it_is_outside() -> None:
    with runtime(threads=2, isa="ref") as outer:
        assert outer == current() == Policy(threads=2, isa="ref")
        with runtime(determinism="fast", max_bytes=1000) as inner:
            assert inner == current() == Policy(threads=2, isa="ref", determinism="fast", max_bytes=1000)
            with runtime(threads=1, passes=()):
                assert current() == Policy(
                    threads=1, isa="ref", determinism="fast", max_bytes=1000, passes=()
                )
            assert current() is inner
        assert current() is outer
    assert current() == Policy()


def test_an_error_inside_restores_the_policy() -> None:
    with pytest.raises(ValueError, match="inside"), runtime(threads=3):
        raise ValueError("inside")
    assert current() == Policy()


def test_each_thread_of_python_has_its_own_policy() -> None:
    seen: list[Policy] = []
    with runtime(threads=2):
        thread = threading.Thread(target=lambda: seen.append(current()))
        thread.start()
        thread.join()
        assert current().threads == 2
    assert seen == [Policy()]


# --- the environment ---------------------------------------------------------------------------------


def test_the_environment_sets_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(VARIABLES, ("cpu", "3", "ref", "balanced"), strict=True):
        monkeypatch.setenv(name, value)
    assert current() == from_environment() == Policy("cpu", 3, "ref", "balanced")
    with runtime(threads=1):
        assert current() == Policy("cpu", 1, "ref", "balanced")


def test_empty_variables_count_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
    assert current() == Policy()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("VOLTA_NUM_THREADS", "two", r"\[runtime\] VOLTA_NUM_THREADS is 'two': expected a whole number"),
        ("VOLTA_NUM_THREADS", "-1", r"VOLTA_NUM_THREADS is '-1'"),
        ("VOLTA_NUM_THREADS", "1.5", r"VOLTA_NUM_THREADS is '1\.5'"),
        ("VOLTA_NUM_THREADS", "100000", r"\[runtime\] threads is 100000: expected 0"),
        ("VOLTA_ISA", "AVX2", r"\[runtime\] isa is 'AVX2': expected one of"),
        ("VOLTA_DEVICE", "tpu", r"\[runtime\] device is 'tpu'"),
        ("VOLTA_DETERMINISM", "on", r"\[runtime\] determinism is 'on'"),
    ],
)
def test_a_variable_that_means_nothing_is_an_error_at_use(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=message):
        vt.asarray([1.0]) + 1


def test_a_fresh_process_obeys_its_environment() -> None:
    code = "import volta as vt; print(vt.compile(lambda x: x + 1).lower(vt.ones((2,))).signature)"
    environment = {"VOLTA_ISA": "ref", "VOLTA_NUM_THREADS": "3", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("cpu/ref/3 threads/")


# --- what is not there -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Policy(device="cuda"), r"\[runtime\] device is 'cuda': this version has cpu only"),
        (Policy(device="opencl"), r"\[runtime\] device is 'opencl': this version has cpu only"),
    ],
)
def test_a_device_that_is_not_there_is_an_error(policy: Policy, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        gateway.resolve(policy)


def test_a_pinned_instruction_set_that_the_processor_lacks_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No fallback: with all of them gone, only `auto` finds the reference."""
    ffi, lib = native.library()

    class Plain:
        """The library on a processor without vectors."""

        def __getattr__(self, name: str) -> Any:
            return getattr(lib, name)

        def volta_cpu_isa_supported(self, code: int) -> int:
            return int(code == 0)

    monkeypatch.setattr(native, "library", lambda: (ffi, Plain()))
    for isa in ("avx2", "avx512", "amx"):
        with pytest.raises(DeviceError, match=rf"\[native\] isa is '{isa}': this processor supports ref"):
            CpuBackend(isa, 1)
    assert CpuBackend("auto", 1).target.isa == "ref"


def test_auto_says_what_it_chose() -> None:
    backend = gateway.resolve(Policy())
    info = gateway.cpu_info()
    assert backend.target.signature.startswith(f"cpu/{info.isas[-1]}/{info.cpus} threads/")
