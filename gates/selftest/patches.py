"""The seeded patches: what is changed, which gate must say what about it. `says` is part of a finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gates.evidence.verdict import Verdict
from gates.selftest.edits import Edit, link, remove, rename, replace, submodule, write

CSRC, VOLTA = "engine/csrc", "engine/volta"
NAMED = "RFC-0001: agreed"  # a message that names an Accepted RFC


@dataclass(frozen=True, slots=True)
class Patch:
    """gate: the one that is meant for it. says: what some finding or the figure contains."""

    name: str
    gate: str
    says: str
    edits: Sequence[Edit]
    message: str = "a change"
    verdict: Verdict = Verdict.FAIL


def good(name: str, gate: str, *edits: Edit, message: str = "a change") -> Patch:
    return Patch(name, gate, "", edits, message, Verdict.PASS)


# fmt: off
# --- numbers ---------------------------------------------------------------------------------------------

NUMBERS = (
    Patch("off by one in a kernel's tail", "parity", "elements of result",
          [replace(f"{CSRC}/cpu/simd/softmax.h", "block_sub(shifted, log_s), V - i)", "block_sub(shifted, log_s), V - i - 1)")]),
    Patch("K order reversed", "parity", "matmul",
          [replace(f"{CSRC}/cpu/ref/matmul.c",
                   "for (int64_t k = first; k < last; k++) acc = fmaf(a[k * x->a_cs], b[k * x->b_rs], acc);",
                   "for (int64_t k = last - 1; k >= first; k--) acc = fmaf(a[k * x->a_cs], b[k * x->b_rs], acc);")]),
    Patch("a reduction with another lane count", "parity", "sum",
          [replace(f"{CSRC}/cpu/ref/reduce.c", "y = volta_lanes_sum(x, p.count, p.stride);",
                   "{ y = 0.0f; for (int64_t k = 0; k < p.count; k++) y += x[k * p.stride]; }")]),
    Patch("lanes combined in another order", "parity", "elements of result",
          [replace(f"{CSRC}/cpu/simd/vector.h",
                   "const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));\n"
                   "  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));",
                   "const __m128 two = _mm_add_ps(four, _mm_movehdup_ps(four));\n"
                   "  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehl_ps(two, two)));")]),
    Patch("fma replaced by mul and add", "parity", "matmul",
          [replace(f"{CSRC}/cpu/simd/matmul_vector.h", "#define vector_fma _mm256_fmadd_ps",
                   "#define vector_fma(a, b, c) _mm256_add_ps(_mm256_mul_ps(a, b), c)")]),
    Patch("an uninitialised output", "parity", "embedding_grad",
          [replace(f"{CSRC}/cpu/simd/embedding.h", "C; c += VOLTA_LANES) block_store(out + c, block_set(0.0f), C - c);",
                   "0; c++) (void)out;")]),
    Patch("a data race: a barrier removed", "parity", "norm_grad",
          [replace(f"{CSRC}/cpu/simd/norm.h", "  if (call->threads > 1) volta_pool_barrier(call->pool);\n", "")]),
    Patch("a faster exp with another rounding", "parity", "exp",
          [replace(f"{CSRC}/vmath.h", "return p * VOLTA_FLOAT(low) * VOLTA_FLOAT(high);",
                   "return p * (VOLTA_FLOAT(low) * VOLTA_FLOAT(high)) * 1.0000001f;")]),
    Patch("bf16 rounded by truncation", "parity", "cast",
          [replace(f"{CSRC}/cpu/bfloat16.h", "VOLTA_BITS(volta_round_bf16(x)) >> 16", "VOLTA_BITS(x) >> 16")]),
    Patch("kernels that do not compile", "parity", "do not compile",
          [replace(f"{CSRC}/cpu/ref/reduce.c", "int volta_reduce_ref(const volta_call *call) {", "int volta_reduce_ref(const volta_call *call) { no such thing")]),
    good("a comment in a kernel", "parity",
         replace(f"{CSRC}/cpu/ref/reduce.c", "int volta_reduce_ref(", "/* N2. */\nint volta_reduce_ref(")),
)

# --- runs ------------------------------------------------------------------------------------------------

RUNS = (
    Patch("training depends on the number of threads", "determinism", "differ from plain C",
          [replace(f"{VOLTA}/train/step.py", "total = tree_sum(one, shards)",
                   "from volta.runtime.policy import current\n\n"
                   "        total = tree_sum(one, shards)\n"
                   "        if (current().threads or 0) > 1:\n"
                   "            total = {name: F.scale(value, 1.0000001) for name, value in total.items()}")]),
    Patch("a kernel that depends on the thread", "determinism", "first to diverge",
          [replace(f"{CSRC}/cpu/ref/loss.c", "volta_share(R, call->thread, call->threads, &first, &last);",
                   "volta_share(R, call->thread, call->threads, &first, &last);\n"
                   "  if (call->threads == 3) last = last > first ? last - 1 : last;", True)]),
    Patch("a fingerprint with the time in it", "determinism", "fingerprints",
          [replace(f"{VOLTA}/plan/fingerprint.py", "digest = hashlib.sha256(graph_digest(graph).encode())",
                   "import time\n\n    digest = hashlib.sha256(f'{graph_digest(graph)}{time.time_ns()}'.encode())")]),
    Patch("a cache that keeps the batch's last row", "determinism", "differs from",
          [replace(f"{VOLTA}/infer/generate.py", "self.cache.lengths[:, np.newaxis] + np.arange(time, dtype=np.int32)",
                   "self.cache.lengths[:, np.newaxis] + np.arange(time, dtype=np.int32) * (self.batch == 1 or time == 1)")]),
    Patch("a leak in every step", "memory", "pages more",
          [replace(f"{VOLTA}/runtime/gateway.py", '        """One call into the backend."""\n',
                   '        """One call into the backend."""\n'
                   "        _kept.append(np.ones(1024, np.float32))\n"),
           replace(f"{VOLTA}/runtime/gateway.py", "class Session:\n", "_kept: list[Array] = []\n\n\nclass Session:\n")]),
    Patch("an arena without reuse", "memory", "its baseline",
          [replace(f"{VOLTA}/plan/memory.py", "if other_last < first or last < other_first:", "if False:")]),
    Patch("an arena that grows after it was planned", "memory", "measured",
          [replace(f"{CSRC}/program.c", "return program->high_water; }", "return program->high_water + 64; }")]),
    good("another name in the planner", "memory",
         replace(f"{VOLTA}/plan/memory.py", "placed", "laid", every=True)),
)

# --- time and counters -----------------------------------------------------------------------------------

TIME = (
    Patch("a slowdown of a tenth", "bench_smoke", "instructions",
          [replace(f"{CSRC}/program.c", "    int status = volta_targets[p->isa][step->kernel].run(&call);",
                   "    int status = volta_targets[p->isa][step->kernel].run(&call);\n"
                   "    for (volatile int64_t i = 0; i < 100000; i++) {}")]),
    Patch("an engine that keeps results instead of computing", "bench_smoke", "",
          [replace(f"{VOLTA}/runtime/gateway.py", "        self._call(self._bound.run)\n",
                   "        if getattr(self, '_ran', 0) > 2:\n            return\n"
                   "        self._ran = getattr(self, '_ran', 0) + 1\n        self._call(self._bound.run)\n")]),
    Patch("a patched timer", "bench_smoke", "patched timer",
          [replace(f"{VOLTA}/__init__.py", '__version__ = "0.1.0"',
                   '__version__ = "0.1.0"\nimport sys as _sys\nfrom time import perf_counter_ns as _real\n\n'
                   'if hasattr(_sys.modules["__main__"], "Bench"):\n'
                   '    _sys.modules["__main__"].Bench.timed.__defaults__ = (lambda: _real() // 2,)')]),
    Patch("a plan with steps that do nothing", "bench_smoke", "steps",
          [replace(f"{VOLTA}/passes/__init__.py", '"dce": drop_dead,', '"dce": lambda graph: graph,')]),
    Patch("slower on several threads alone", "bench", "threads: ",
          [replace(f"{CSRC}/program.c", "    int status = volta_targets[p->isa][step->kernel].run(&call);",
                   "    int status = volta_targets[p->isa][step->kernel].run(&call);\n"
                   "    for (volatile int64_t i = 0; call.threads > 1 && i < 500000; i++) {}")]),
    Patch("a compilation that verifies everything nine times", "planning", "uncached",
          [replace(f"{VOLTA}/passes/__init__.py", "        verify(graph)\n        if observe",
                   "        for _ in range(9):\n            verify(graph)\n        if observe")]),
    Patch("an operation that is compiled at every call", "planning", "look-ups",
          [replace(f"{VOLTA}/runtime/gateway.py", "return _op_cache.get_or_make(key, ",
                   "return _op_cache.get_or_make((key, len(_op_cache)), ")]),
    Patch("a plan that is never found again", "planning", "cached compilation",
          [replace(f"{VOLTA}/plan/fingerprint.py", "digest = hashlib.sha256(graph_digest(graph).encode())",
                   "import time\n\n    digest = hashlib.sha256(f'{graph_digest(graph)}{time.time_ns()}'.encode())")]),
)

# --- memory that a kernel must not touch -----------------------------------------------------------------

BOUNDS = (
    Patch("a read past the end", "sanitizers", "AddressSanitizer",
          [replace(f"{CSRC}/cpu/ref/reduce.c", "y = volta_lanes_sum(x, p.count, p.stride);",
                   "{ y = volta_lanes_sum(x, p.count, p.stride); volatile float past = x[(p.count + 64) * p.stride]; (void)past; }")]),
    Patch("a sum that overflows", "sanitizers", "runtime error",
          [replace(f"{CSRC}/cpu/ref/reduce.c", "  int64_t first, last, out, in;",
                   "  int64_t first, last, out, in;\n  volatile int most = 2147483647, more = most + 1;\n  (void)more;")]),
    Patch("a decision on what nobody wrote", "sanitizers", "memcheck: UninitCondition",
          [replace(f"{CSRC}/cpu/ref/reduce.c", "  int64_t first, last, out, in;",
                   "  int64_t first, last, out, in;\n  volatile float never[4];\n  if (never[call->threads & 3] > 0.0f) never[0] = 1.0f;")]),
)

# --- the law ---------------------------------------------------------------------------------------------

LAW = (
    Patch("a loosened tolerance", "policy", "tolerance",
          [replace("tests/ops/test_quantize.py", "rtol=1e-4, atol=1e-3)", "rtol=1e-2, atol=1e-3)")]),
    Patch("a deleted test", "policy", "was deleted", [remove("tests/plan/test_memory.py")]),
    Patch("a new skip", "policy", "has a new pytest.mark.skip",
          [replace("tests/unit/test_schedule.py", "def test_rates_after_warmup_never_rise()",
                   '@pytest.mark.skip(reason="later")\ndef test_rates_after_warmup_never_rise()')]),
    Patch("an assertion removed", "policy", "asserts less",
          [replace("tests/unit/test_schedule.py",
                   "        assert all(a >= b for a, b in itertools.pairwise(rates))", "        del rates")]),
    Patch("an assertion that is always true", "policy", "asserts less",
          [replace("tests/unit/test_schedule.py",
                   "        assert all(a >= b for a, b in itertools.pairwise(rates))",
                   "        assert all(a >= b for a, b in itertools.pairwise(rates)) or True")]),
    Patch("fewer cases", "policy", "less is judged",
          [replace("tests/ops/rows.py", "LENGTHS = (0, 1, 2, 15, 16, 17, 31, 32, 33,", "LENGTHS = (32,")]),
    Patch("a shrunken benchmark input", "policy", "less is judged",
          [replace(f"{VOLTA}/bench/suite.py", "ROTATED_BYTES = ", "ROTATED_BYTES = 1024 # was ")]),
    Patch("an edited baseline", "policy", "needs an Accepted RFC",
          [replace("governance/baselines/memory.yaml", "gpt: ", "gpt: 9")]),
    Patch("golden bits replaced", "policy", "needs an Accepted RFC",
          [replace(f"{VOLTA}/train/bits.json", '"gpt": "', '"gpt": "0')]),
    Patch("an expired waiver", "policy", "expired on",
          [write("governance/waivers.yaml",
                 "waivers:\n  - id: W-001\n    gate: policy\n    scope: [docs/]\n"
                 "    reason: the documents move to another place\n    owner: '@volta/maintainers'\n"
                 "    expires: 2001-01-01\n")], NAMED),
    Patch("a waiver without an end", "policy", "expires",
          [write("governance/waivers.yaml",
                 "waivers:\n  - id: W-001\n    gate: policy\n    scope: [docs/]\n"
                 "    reason: the documents move to another place\n    owner: '@volta/maintainers'\n")], NAMED),
    Patch("a renamed judge that dodges its tier", "policy", "needs an Accepted RFC",
          [rename("gates/policy.py", "docs/policy.md")]),
    Patch("a link out of scope", "policy", "a link to", [link("docs/more.md", "../../outside.md")]),
    Patch("a link from a text to a judge", "policy", "a link to", [link("docs/gate.md", "../gates/policy.py")]),
    Patch("a submodule", "policy", "a submodule", [submodule("engine/other")]),
    Patch("a path that no tier names", "policy", "needs an Accepted RFC", [write("scripts/fast.sh", "true\n")]),
    Patch("a judge edited", "policy", "needs an Accepted RFC",
          [replace("gates/policy.py", "MOST_LISTED = 200", "MOST_LISTED = 0")]),
    Patch("a limit lowered", "policy", "needs an Accepted RFC",
          [replace("governance/limits.yaml", "train: 95.0", "train: 5.0")]),
    Patch("a tier with fewer gates", "policy", "needs an Accepted RFC",
          [replace("governance/tiers.yaml", "gates: [fmt, lint, policy, docs, security]", "gates: [fmt]")]),
    Patch("a workflow that asks nobody", "policy", "needs an Accepted RFC",
          [write(".github/workflows/pr-gates.yml", "on: push\njobs: {}\n")]),
    Patch("an RFC that is not there", "policy", "none of them accepted",
          [replace("noxfile.py", "import hashlib", "import hashlib  # .")], "RFC-9999 says so"),
    Patch("a malformed law", "policy", "not YAML",
          [write("governance/tiers.yaml", "tiers:\n  - id: T0\n    title: [\n")], NAMED),
    Patch("a law with an unknown gate", "policy", "is unknown",
          [replace("governance/tiers.yaml", "gates: [fmt, lint, policy, docs, security]", "gates: [vibes]")], NAMED),
    Patch("owners without their file", "policy", "governance/owners.yaml",
          [replace("governance/owners.yaml", "paths: [engine/csrc/]", "paths: [engine/]")], NAMED),
    good("a test renamed, its body kept", "policy",
         replace("tests/unit/test_schedule.py", "test_rates_after_warmup_never_rise", "test_rates_never_rise_later")),
    good("a test more", "policy",
         replace("tests/unit/test_schedule.py", "def test_rates_after_warmup_never_rise()",
                 "def test_nothing_is_below_zero() -> None:\n    assert min(_rates(Schedule('constant', 1.0, 3))) > 0\n\n\n"
                 "def test_rates_after_warmup_never_rise()")),
    good("a judge edited, with an RFC in force", "policy",
         replace("gates/policy.py", "MOST_LISTED = 200", "MOST_LISTED = 300"), message=NAMED),
)

# --- text, types, tests, names ---------------------------------------------------------------------------

TEXT = (
    Patch("Python laid out by hand", "fmt", "ruff format",
          [replace(f"{VOLTA}/plan/memory.py", "return -(-nbytes // ALIGNMENT) * ALIGNMENT",
                   "return (-(-nbytes   // ALIGNMENT)*ALIGNMENT)")]),
    Patch("C laid out by hand", "fmt", "clang-format",
          [replace(f"{CSRC}/cpu/ref/reduce.c", "  int64_t first, last, out, in;", "  int64_t first,last,out,in;")]),
    good("a comment well laid out", "fmt",
         replace(f"{VOLTA}/plan/memory.py", "def align(", "# Bytes.\ndef align(")),
    Patch("an unused import", "lint", "unused",
          [replace(f"{VOLTA}/plan/memory.py", "from bisect import insort", "import os\nfrom bisect import insort")]),
    Patch("an import up the tree", "lint", "import edge",
          [replace(f"{VOLTA}/ir/graph.py", "from volta.errors", "from volta.train import loop as loop\nfrom volta.errors")]),
    Patch("fast-math added", "lint", "-ffast-math",
          [replace(f"{CSRC}/build_ffi.py", '    "-ffp-contract=off",', '    "-ffp-contract=off",\n    "-ffast-math",')]),
    Patch("contraction allowed", "lint", "-ffp-contract=fast",
          [replace(f"{CSRC}/build_ffi.py", '"-ffp-contract=off"', '"-ffp-contract=fast"')]),
    Patch("fast-math by a pragma", "lint", "pragma",
          [replace(f"{CSRC}/cpu/ref/loss.c", "#include", '#pragma GCC optimize("fast-math")\n#include', True)]),
    Patch("subnormals flushed", "lint", "subnormals",
          [replace(f"{CSRC}/cpu/ref/gather.c", "int volta_gather_ref(const volta_call *call) {",
                   "int volta_gather_ref(const volta_call *call) {\n  _mm_setcsr(0x8040);", True)]),
    Patch("a kernel with a name of its own", "lint", "is external",
          [replace(f"{CSRC}/cpu/ref/gather.c", "int volta_gather_ref(", "int fastGather(const volta_call *call) { return call == 0; }\nint volta_gather_ref(", True)]),
    Patch("a null pointer read", "lint", "null",
          [replace(f"{CSRC}/cpu/ref/cache.c", "(const volta_call *call) {", "(const volta_call *call) {\n  int *nothing = 0;\n  if (call->threads > 99) return *nothing;")]),
    Patch("a box ticked by hand", "lint", "is not what is generated",
          [replace("PRD.md", "- [ ] [T-021]", "- [x] [T-021]")]),
    Patch("a record of the ledger edited", "lint", "was edited",
          [replace("tasks/ledger.jsonl", '"verdict":"PROVED"', '"verdict":"LANDED"', True)]),
    good("a comment in a source", "lint",
         replace(f"{VOLTA}/plan/memory.py", "def align(", "# Bytes.\ndef align(")),
    Patch("a wrong type", "types", "error",
          [replace(f"{VOLTA}/plan/memory.py", "return -(-nbytes // ALIGNMENT) * ALIGNMENT", "return str(nbytes)")]),
    Patch("a function without types", "types", "error",
          [replace(f"{VOLTA}/plan/memory.py", "def align(nbytes: int) -> int:", "def align(nbytes):")]),
    Patch("a failing test", "tests", "test_rates_after_warmup_never_rise",
          [replace("tests/unit/test_schedule.py", "        assert all(a >= b for a, b in itertools.pairwise(rates))",
                   "        assert all(a < b for a, b in itertools.pairwise(rates))")]),
    Patch("a bug with its test made to fit", "tests", "as the base has it",
          [replace(f"{VOLTA}/train/schedule.py", "def learning_rate(", "def learning_rate(schedule: Schedule, step: int) -> float:\n    return rate_of(schedule, step) * 2\n\n\ndef rate_of("),
           write("tests/unit/test_schedule.py", "def test_nothing() -> None:\n    assert 1 + 1 == 2\n")]),
    Patch("code that nothing tests", "tests", "of lines covered",
          [write(f"{VOLTA}/plan/untested.py", "\n".join(f"value_{i} = {i}\n\n\ndef f{i}(x: int) -> int:\n    y = x + {i}\n    z = y * 2\n    return z\n" for i in range(60))),
           replace(f"{VOLTA}/plan/build.py", "from volta.plan import ", "from volta.plan import untested as untested\nfrom volta.plan import ")]),
    Patch("a new function that nothing runs", "coverage", "run by no test",
          [replace(f"{VOLTA}/plan/memory.py", "def align(",
                   "def spare(nbytes: int, used: int) -> int:\n    left = nbytes - used\n    if left < 0:\n"
                   "        left = 0\n    return left\n\n\ndef align(")]),
    Patch("a public name removed", "api", "has gone", [replace(f"{VOLTA}/__init__.py", '    "rms_norm",\n', "")]),
    Patch("a parameter removed", "api", "takes less",
          [replace(f"{VOLTA}/functions.py", "def softmax(x: Tensor, axis: int = -1) -> Tensor:", "def softmax(x: Tensor) -> Tensor:\n    axis = -1")]),
    Patch("an option removed", "api", "has gone",
          [replace(f"{VOLTA}/cli/train.py", "patience", "stamina", True)]),
    good("a public name removed, and said so", "api",
         replace(f"{VOLTA}/__init__.py", '    "rms_norm",\n', ""),
         replace("CHANGELOG.md", "### Added\n", "### Removed\n\n- `rms_norm`.\n\n### Added\n")),
    Patch("a kernel's own version dropped without a word", "capability", "not what the tables say",
          [replace(f"{CSRC}/cpu/targets.def", "softmax_grad_ref,       softmax_grad_avx2,       softmax_grad_avx512", "softmax_grad_ref,       softmax_grad_ref,       softmax_grad_ref")]),
    Patch("a command that is not there", "docs", "volta",
          [replace("docs/benchmarks.md", "# ", "Run `volta fly --high` first.\n\n# ", True)]),
    Patch("a broken link", "docs", "", [replace("docs/architecture.md", "# ", "[there](nowhere.md)\n\n# ", True)]),
    Patch("a secret", "security", "",
          [write("docs/notes.md", "key = 'AKIA" + "IOSFODNN7" + "QQQQQQQ'\n")]),
    Patch("pickle", "security", "pickle",
          [replace(f"{VOLTA}/saving.py", "from __future__ import annotations\n", "from __future__ import annotations\n\nimport pickle\n")]),
    Patch("a standard clock replaced", "security", "time.perf_counter",
          [replace(f"{VOLTA}/__init__.py", '__version__ = "0.1.0"',
                   '__version__ = "0.1.0"\nimport time as _time\n\n_real = _time.perf_counter\n'
                   "_time.perf_counter = lambda: _real() / 2")]),
    Patch("C that prints", "security", "printf",
          [replace(f"{CSRC}/cpu/ref/cache.c", "(const volta_call *call) {", '(const volta_call *call) {\n  printf("%d", call->threads);')]),
)

# fmt: on

PATCHES = (*NUMBERS, *RUNS, *TIME, *BOUNDS, *LAW, *TEXT)
