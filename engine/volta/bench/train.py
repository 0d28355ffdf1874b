"""A training step beside PyTorch's: `python -m volta.bench.train --peers torch`.

Each side runs in a process of its own, started once; rounds of steps alternate between them, so that a
machine whose speed drifts slows both. The figure is the median of a round's median step; the ratio is
taken round by round. Both sides start from the same weights and see the same batches: their losses must
agree, or nothing is reported.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from volta.bench.peers import PEERS, make
from volta.errors import VoltaError
from volta.model.config import CONFIGS, named
from volta.train.synthetic import synthetic_text

TEXT_BYTES = 200_000
CLOSE = 2e-3  # relative difference of losses: both are float32, in different orders of summation


def main() -> None:
    given = _arguments()
    if given.worker:
        serve(given)
        return
    try:
        result = compare(given)
    except VoltaError as error:
        sys.exit(f"bench: {error}")
    sys.stdout.write(json.dumps(result, indent=2) + "\n" if given.json else table(result))


def compare(given: argparse.Namespace) -> dict[str, Any]:
    """Alternating rounds of every side; the samples, medians and ratios."""
    sides = ["volta", *(name for name in given.peers.split(",") if name)]
    workers = {name: Worker(name, given) for name in sides}
    samples: dict[str, list[float]] = {name: [] for name in sides}
    losses: dict[str, list[float]] = {name: [] for name in sides}
    try:
        for round_ in range(given.rounds + 1):
            for name in sides if round_ % 2 == 0 else reversed(sides):
                answer = workers[name].run(given.steps)
                losses[name] += answer["losses"]
                if round_ > 0:  # the first warms up
                    samples[name].append(statistics.median(answer["seconds"]))
        descriptions = {name: worker.description for name, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.close()
    for name in sides[1:]:
        worst = max(abs(a - b) / abs(b) for a, b in zip(losses["volta"][:20], losses[name][:20], strict=True))
        if not worst <= CLOSE:
            raise VoltaError(
                f"the losses of volta and {name} differ by {worst:.1e}: expected {CLOSE:.0e} at most"
            )
    return {
        "config": given.config,
        "batch": given.batch,
        "threads": given.threads,
        "rounds": given.rounds,
        "steps_per_round": given.steps,
        "machine": f"{_cpu()}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}",
        "command": "python -m volta.bench.train " + " ".join(sys.argv[1:]),
        "sides": {
            name: {
                "description": descriptions[name],
                "seconds": samples[name],
                "median_ms": 1e3 * statistics.median(samples[name]),
                "spread_ms": [1e3 * min(samples[name]), 1e3 * max(samples[name])],
            }
            for name in sides
        },
        "ratio_to_volta": {
            name: {
                "median": statistics.median(_ratios(samples, name)),
                "least": min(_ratios(samples, name)),
                "most": max(_ratios(samples, name)),
            }
            for name in sides[1:]
        },
    }


def table(result: dict[str, Any]) -> str:
    """The result as a Markdown table with the command and the machine."""
    lines = [
        f"{result['config']}, batch {result['batch']}, {result['threads']} threads; {result['machine']}",
        f"{result['rounds']} alternating rounds of {result['steps_per_round']} steps; {result['command']}",
        "",
        "| side | median step | fastest to slowest round | times Volta's (per round) |",
        "|---|---|---|---|",
    ]
    for name, side in result["sides"].items():
        ratio = result["ratio_to_volta"].get(name)
        shown = f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})" if ratio else "1"
        low, high = side["spread_ms"]
        lines.append(
            f"| {side['description']} | {side['median_ms']:.2f} ms | {low:.2f} to {high:.2f} ms | {shown} |"
        )
    return "\n".join(lines) + "\n"


class Worker:
    """One side in its own process: a line of JSON in, a line of JSON out."""

    def __init__(self, name: str, given: argparse.Namespace) -> None:
        command = [
            sys.executable,
            "-m",
            "volta.bench.train",
            "--worker",
            name,
            "--config",
            given.config,
            "--batch",
            str(given.batch),
            "--threads",
            str(given.threads),
        ]
        self.name = name
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.description = str(self._read()["description"])

    def run(self, steps: int) -> dict[str, Any]:
        if self._process.stdin is None:
            raise VoltaError(f"the worker {self.name} has no input")
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise VoltaError(
                f"{self.name} could not run (exit code {self._process.wait()}): "
                "is it installed? pip install 'volta-runtime[peers]'"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=60)


def serve(given: argparse.Namespace) -> None:
    """The worker's side: reads how many steps to run, answers with the time and loss of each."""
    config = named(given.config)
    printable = bytes(max(0, byte - 32) % config.vocabulary for byte in range(256))  # ASCII from 0
    text = synthetic_text(TEXT_BYTES).translate(printable)
    peer = make(given.worker, config, given.batch, text, given.threads)
    sys.stdout.write(json.dumps({"description": peer.description}) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        seconds, losses = [], []
        for _ in range(int(line)):
            begin = time.perf_counter()
            losses.append(peer.step())
            seconds.append(time.perf_counter() - begin)
        sys.stdout.write(json.dumps({"seconds": seconds, "losses": losses}) + "\n")
        sys.stdout.flush()


def _ratios(samples: dict[str, list[float]], name: str) -> Sequence[float]:
    return [theirs / ours for theirs, ours in zip(samples[name], samples["volta"], strict=True)]


def _cpu() -> str:
    from volta.runtime import gateway

    return gateway.cpu_info().model


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m volta.bench.train", description=__doc__)
    parser.add_argument(
        "--peers", default="torch", help=f"comma-separated, of {', '.join(PEERS[1:])}; empty: none"
    )
    parser.add_argument("--config", default="nanogpt-cpu", choices=list(CONFIGS))
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=10, help="steps per round")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", choices=PEERS, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
