"""The binding: cffi in API mode, compiled with the kernels into the one module `volta._native`."""

from __future__ import annotations

from pathlib import Path

from cffi import FFI

CSRC = Path("engine/csrc")  # relative to the project's root, as setuptools requires
FLAGS = [
    "-std=c11",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-pthread",
    "-Wall",
    "-Wextra",
]

# Struct fields repeat volta.h: cffi has the C compiler check every offset and size.
DECLARATIONS = """
typedef struct {
  int32_t buffer, dtype, rank, reserved;
  int64_t offset, shape[6], stride[6];
} volta_operand;
typedef struct {
  int16_t op, to, from[6];
  float imm[4];
} volta_instruction;
typedef struct {
  int32_t kernel, barrier;
  int32_t first_operand, n_operands, n_outputs;
  int32_t first_instruction, n_instructions, n_temporaries;
  int64_t workspace, ints[8];
  float floats[8];
} volta_step;
typedef struct {
  int32_t status, step;
  int64_t detail[2];
} volta_error;
typedef struct {
  const char *code;
  int32_t kind, isa, available;
  int32_t mr, nr, kc, mc, nc, ahead;
} volta_tile_facts;
typedef ... volta_program;

#define VOLTA_ABI_VERSION ...
#define VOLTA_MAX_RANK ...
#define VOLTA_MAX_REGISTERS ...
#define VOLTA_MAX_THREADS ...
#define VOLTA_TILE ...
#define VOLTA_ALIGNMENT ...

const char *volta_kernel_name(int kernel);
const char *volta_op_name(int op);
int volta_op_inputs(int op);

int volta_cpu_isa_supported(int isa);
int volta_cpu_has(int needs);
int volta_tile_row(int32_t id, volta_tile_facts *facts);
const char *volta_tile_problem(int32_t id);
int64_t volta_packed_bytes(
    int32_t tile, int32_t kind, int isa, int64_t k, int64_t n, int64_t group);
int volta_cpus_available(void);
int64_t volta_cpu_cache_bytes(int level);
int volta_pool_workers(void);
int64_t volta_probe_work(int kind, int isa, int64_t bytes);
int volta_probe_run(
    int kind, int isa, int threads, void *memory, int64_t bytes, int64_t repeats, double *seconds);

volta_program *volta_program_new(
    const volta_step *steps, int32_t n_steps, const volta_operand *operands, int32_t n_operands,
    const volta_instruction *instructions, int32_t n_instructions, int32_t n_buffers,
    int64_t arena_bytes, int isa, int threads, volta_error *error);
int volta_program_run(
    volta_program *program, void *const *buffers, int32_t first, int32_t last, double *stamps,
    volta_error *error);
void volta_program_free(volta_program *program);
int64_t volta_program_buffer_bytes(const volta_program *program, int32_t buffer);
int volta_program_buffer_written(const volta_program *program, int32_t buffer);
void *volta_program_arena(volta_program *program);
int64_t volta_program_high_water(const volta_program *program);
const char *volta_program_rule(int rule);
int64_t volta_workspace_bytes(
    const volta_step *step, const volta_operand *operands, int isa, int threads);
"""

ffi = FFI()
ffi.cdef(DECLARATIONS)
ffi.set_source(
    "volta._native",
    "".join(
        f'#include "{name}.h"\n'
        for name in ("volta", "cpu_info", "cpu/matmul_tiles", "manifest", "pool", "probe", "program")
    ),
    sources=sorted(str(path) for path in [*CSRC.glob("*.c"), *CSRC.glob("cpu/**/*.c")]),
    depends=sorted(str(path) for suffix in ("h", "def") for path in CSRC.rglob(f"*.{suffix}")),
    include_dirs=[str(CSRC)],
    extra_compile_args=FLAGS,
    extra_link_args=["-pthread"],
    libraries=["m"],
)
