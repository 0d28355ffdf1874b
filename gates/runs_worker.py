"""In a process with the engine under judgement: whole runs. One JSON request on standard input, one answer.

The models are the judge's own, small enough for every instruction set, and together they use every kernel
that training and generation have.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 4
TEXT_BYTES = 6_000
LOOKED_UP = 200  # steps of the run whose look-ups are counted
PAGE = resource.getpagesize()
GPT = {"vocabulary": 128, "context": 40, "depth": 2, "width": 48, "heads": 3, "kv_heads": 3, "dropout": 0.1}
LLAMA = {
    "vocabulary": 128, "context": 33, "depth": 2, "width": 64, "heads": 4, "kv_heads": 2, "norm": "rms",
    "activation": "silu", "positions": "rotary", "tied": False, "bias": False,
}  # fmt: skip
MODELS: Mapping[str, Mapping[str, Any]] = {
    "gpt": GPT,
    "llama": LLAMA,
    "gpt-bf16": {**GPT, "dtype": "bf16", "dropout": 0.0},
}
PROMPTS = ("The same bits", "whatever the batch", "a")


def text() -> bytes:
    """Printable, from a fixed generator: no engine has a part in it."""
    letters = np.random.default_rng(20_240_229).integers(32, 127, TEXT_BYTES, np.uint8)
    return letters.tobytes()


def trainer(model: str, steps: int = STEPS) -> Any:
    from volta.model.config import Config
    from volta.train.loop import Settings, Trainer
    from volta.train.optim import Optimizer
    from volta.train.schedule import Schedule

    settings = Settings(
        Config(**MODELS[model]),
        Schedule("cosine", 1e-3, steps, 1, 0.1),
        Optimizer(),
        batch=3,
        shards=2,
        seed=7,
        validation=0.0,
        evaluate_every=0,
        save_every=0,
    )
    return Trainer(settings, text())


def train(_: Mapping[str, Any]) -> dict[str, str]:
    """Weights and losses after some steps, of every model."""
    found = {}
    for model in MODELS:
        run = trainer(model)
        losses = [report.loss for report in run.steps()]
        found[f"{model} weights"] = weights(run.parameters)
        found[f"{model} losses"] = sha(np.array(losses, np.float64))
    return found


def weights(parameters: Mapping[str, Any]) -> str:
    content = hashlib.sha256()
    for name in sorted(parameters):
        content.update(name.encode() + np.ascontiguousarray(parameters[name]).tobytes())
    return content.hexdigest()


def sha(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def generate(_: Mapping[str, Any]) -> dict[str, str]:
    """Logits after a prompt: read at once, in chunks, token by token, alone and in a batch. Names with the
    same first word must have equal values."""
    from volta.infer.generate import Generator
    from volta.infer.sample import Sampling
    from volta.model.config import Config
    from volta.model.transformer import tinylm

    found = {}
    for name in ("gpt", "llama", "gpt-bf16"):
        config = Config(**{**MODELS[name], "dropout": 0.0})
        model = tinylm(config)
        parameters = model.init(3)
        prompts = [np.frombuffer(prompt.encode(), np.uint8).astype(np.int32) for prompt in PROMPTS]
        batch = Generator(model, config, parameters, len(prompts))
        greedy = Sampling(temperature=0.0)
        whole = batch.prefill(prompts, greedy, 5, [0, 1, 2])[1]
        found[f"{name} whole"] = sha(whole)
        for chunk in (1, 3):
            found[f"{name} chunks of {chunk}"] = sha(batch.prefill(prompts, greedy, 5, [0, 1, 2], chunk)[1])
        single = Generator(model, config, parameters, 1)
        alone = [single.prefill([one], greedy, 5, [row])[1][0] for row, one in enumerate(prompts)]
        found[f"{name} alone"] = sha(np.stack(alone))
        drawn = Sampling(temperature=0.9, top_k=20, top_p=0.95)
        many = np.stack(list(batch.generate(prompts, 8, drawn, 11)))
        one = np.stack(list(single.generate(prompts[:1], 8, drawn, 11, [0])))
        found[f"{name}-tokens batch"], found[f"{name}-tokens alone"] = sha(many[:, 0]), sha(one[:, 0])
    return found


def plans(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fingerprints of the same plan, made again and again."""
    from volta.runtime import gateway

    found = []
    for _ in range(int(request["repeats"])):
        gateway.clear_caches()
        found.append(trainer("gpt").plan.fingerprint)
    return {"fingerprints": sorted(set(found)), "repeats": len(found)}


def forge_tuned(_: Mapping[str, Any]) -> dict[str, int]:
    """Puts a table into the cache that gives every product of the training steps other tiles and blocks."""
    from volta.backends.cpu.tuned import Blocks
    from volta.runtime import gateway
    from volta.runtime.policy import current

    isa, threads = current().isa, current().threads
    kept = 0
    for model in MODELS:
        for key in gateway.matmul_keys(trainer(model).plan, isa, threads):
            kind = key.split(" ")[0]
            tiles = gateway.register_tiles(kind, isa)
            if tiles:
                gateway.keep_tuned({key: Blocks(tiles[-1].name, 64, 64, 256, 5, 10, 1)})
                kept += 1
    return {"entries": kept}


def memory(request: Mapping[str, Any]) -> dict[str, Any]:
    """Planned and measured bytes per model, and the pages that grow over many steps."""
    planned = {}
    for model in MODELS:
        run = trainer(model)
        list(run.steps())
        planned[model] = [int(run.plan.arena_bytes), int(run.measured_arena_bytes)]
    steps = int(request["steps"])
    run = trainer("gpt", steps)
    pages = []
    for index, _ in enumerate(run.steps()):
        if index >= steps // 10 and index % max(1, steps // 50) == 0:
            pages.append(resident_pages())
    return {"planned": planned, "pages": pages}


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


def planning(request: Mapping[str, Any]) -> dict[str, Any]:
    """Processor seconds to make and to find again the plan of TinyLM's forward pass; hits in training."""
    import volta as vt
    from volta.model.config import named
    from volta.model.transformer import tinylm
    from volta.runtime import gateway

    config = named("tiny")
    model = tinylm(config)
    parameters = model.init(1)
    tokens = vt.asarray(np.zeros((1, config.context), np.int32))
    graph = vt.compile(lambda p, t: model(p, t)).traced(parameters, tokens).graph
    uncached: list[float] = []
    cached: list[float] = []
    for _ in range(int(request["repeats"])):
        gateway.clear_caches()
        for samples in (uncached, cached):
            begin = time.process_time()
            gateway.compile(graph)
            samples.append(time.process_time() - begin)
    gateway.clear_caches()
    run = trainer("gpt", LOOKED_UP)
    for _ in run.steps():
        vt.exp(vt.asarray(np.ones(3, np.float32)))  # what a loop computes beside its step, eagerly
    return {"uncached": uncached, "cached": cached, "statistics": gateway.cache_statistics()}


def diverging(request: Mapping[str, Any]) -> dict[str, str]:
    """The first operation of a training step whose own results differ between two settings, given equal
    operands: loss and gradients of each model, node by node."""
    import volta as vt
    from volta.trace import apply_all

    for model in request["models"]:
        graph = step_graph(model)
        values: dict[Any, list[Any]] = {}
        generator = np.random.default_rng(1)
        for node in graph.nodes:
            if node.op == "input":
                values[node] = [drawn(node, generator, vt, MODELS[model]["vocabulary"])]
            elif node.op == "constant":
                values[node] = [vt.asarray(node.attrs["value"])]
            elif node.op == "result":
                values[node] = [values[node.inputs[0]][node.attrs["index"]]]
            else:
                operands = [values[source][0] for source in node.inputs]
                outcomes = []
                for setting in request["settings"]:
                    with vt.runtime(**setting):
                        outcomes.append(apply_all(node.op, *operands, **node.attrs))
                first, second = ([one.numpy().tobytes() for one in outcome] for outcome in outcomes)
                if first != second:
                    shapes = ", ".join("x".join(map(str, source.shape)) for source in node.inputs)
                    return {"model": model, "op": f"{node!r} on {shapes}"}
                values[node] = list(outcomes[0])
    return {"model": "", "op": ""}


def step_graph(model: str) -> Any:
    """Loss and gradients, without the passes."""
    import volta as vt
    from volta.model.config import Config
    from volta.model.transformer import tinylm

    config = Config(**{**MODELS[model], "dropout": 0.0})
    built = tinylm(config)

    def loss(parameters: Any, tokens: Any, targets: Any) -> Any:
        return vt.cross_entropy(built(parameters, tokens), vt.reshape(targets, (targets.size,)))

    tokens = vt.asarray(np.zeros((2, config.context), np.int32))
    step = vt.compile(lambda p, x, y: vt.value_and_grad(loss)(p, x, y))
    return step.traced(built.init(1), tokens, tokens).graph


def drawn(node: Any, generator: np.random.Generator, vt: Any, vocabulary: int) -> Any:
    if node.dtype.name == "i32":
        return vt.asarray(generator.integers(0, vocabulary, node.shape).astype(np.int32))
    return vt.asarray((generator.standard_normal(node.shape) * 0.1).astype(np.float32))


TASKS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "train": train,
    "generate": generate,
    "plans": plans,
    "forge_tuned": forge_tuned,
    "memory": memory,
    "planning": planning,
    "diverging": diverging,
}


def main() -> None:
    request = json.load(sys.stdin)
    import volta as vt
    from volta.runtime import gateway

    setting = dict(request.get("setting", {}))
    if "passes" in setting:
        setting["passes"] = tuple(setting["passes"])
    with vt.runtime(**setting):
        answer = TASKS[request["task"]](request)
    json.dump({"isas": list(gateway.cpu_info().isas), **answer}, sys.stdout)


if __name__ == "__main__":
    main()
