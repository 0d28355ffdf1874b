/* The ABI between a planned program and its kernels.
 *
 * A program is a flat array of steps. A step names a kernel, its operands (outputs first, then
 * inputs) and its attributes. Every thread of the pool calls the kernel of every step with its
 * own thread index; the kernel divides the work by *output elements*, never inside a contraction
 * or a reduction, so the number of threads cannot change a bit. Kernels return a volta_status and
 * never print, exit, abort or allocate.
 *
 * Dimension letters: B batch, T time (queries), S keys, H heads, G key/value heads, D head width,
 * C channels, V vocabulary, R rows; m n k for matrices.
 */
#ifndef VOLTA_H
#define VOLTA_H

#include <float.h>
#include <stdint.h>

_Static_assert(FLT_EVAL_METHOD == 0, "N0: every operation on floats rounds to a float");

#define VOLTA_ABI_VERSION 2
#define VOLTA_MAX_RANK 6
#define VOLTA_ALIGNMENT 64
#define VOLTA_LANES 32 /* N2: lanes of every reduction */
#define VOLTA_TILE 1024 /* elements of one chain tile: a few registers of it stay in L1 */
#define VOLTA_MAX_REGISTERS 64 /* operands and temporaries of one chain */

typedef enum {
  VOLTA_OK = 0,
  VOLTA_BAD_PROGRAM = 1, /* a step the kernel cannot run: a bug above, never user input */
  VOLTA_INDEX_RANGE = 2, /* an index or position outside its table; detail: value, limit */
  VOLTA_NOT_FINITE = 3,  /* a finite check failed; detail: flat index of the first element */
  VOLTA_NO_MEMORY = 4,
  VOLTA_NO_THREAD = 5
} volta_status;

typedef enum { VOLTA_F32 = 0, VOLTA_BF16 = 1, VOLTA_I32 = 2, VOLTA_I8 = 3 } volta_dtype;

typedef enum {
  VOLTA_ISA_REF = 0,
  VOLTA_ISA_AVX2 = 1,
  VOLTA_ISA_AVX512 = 2,
  VOLTA_ISA_AMX = 3, /* AVX-512 with AMX tiles for bf16 and int8 */
  VOLTA_ISA_COUNT = 4
} volta_isa;

/* A strided view of a buffer. Strides count elements, may be 0 (broadcast) or negative. */
typedef struct {
  int32_t buffer; /* index into the buffers bound at run time; buffer 0 is the arena */
  int32_t dtype;
  int32_t rank;
  int32_t reserved;
  int64_t offset; /* bytes from the buffer's start to element (0, 0, ...) */
  int64_t shape[VOLTA_MAX_RANK];
  int64_t stride[VOLTA_MAX_RANK];
} volta_operand;

/* One elementwise operation on registers of a chain: register[to] = op(register[a], ...).
 * Registers 0 .. n_operands-1 are the step's operands; higher ones are temporaries. */
typedef struct {
  int16_t op; /* row of chain_ops.def */
  int16_t to;
  int16_t from[6];
  float imm[4];
} volta_instruction;

typedef struct {
  int32_t kernel; /* row of kernels.def */
  int32_t barrier; /* 1: wait for all threads before this step; 0: independent of the step before */
  int32_t first_operand, n_operands, n_outputs;
  int32_t first_instruction, n_instructions, n_temporaries;
  int64_t workspace; /* byte offset in the arena of this step's workspace (all threads together) */
  int64_t ints[8];
  float floats[8];
} volta_step;

/* What went wrong, where. Written once, by the first thread that fails. */
typedef struct {
  int32_t status;
  int32_t step;
  int64_t detail[2];
} volta_error;

typedef struct volta_pool volta_pool;

/* What a kernel sees of its step. `data[i]` is the address of operand i's element (0, 0, ...). */
typedef struct {
  const volta_step *step;
  const volta_operand *operand;
  void *const *data;
  const volta_instruction *code;
  char *workspace;
  int32_t thread, threads;
  int32_t isa;
  volta_pool *pool; /* for volta_pool_barrier inside a kernel with phases; NULL when threads == 1 */
  volta_error *error;
} volta_call;

typedef int (*volta_kernel)(const volta_call *call);
/* Bytes of workspace a step needs for `threads` threads; a multiple of VOLTA_ALIGNMENT. */
typedef int64_t (*volta_workspace)(const volta_step *step, const volta_operand *operand, int isa,
                                   int threads);

/* --- pool.c ---------------------------------------------------------------------------------- */
/* All threads of the running step meet here. Kernels with phases call it equally often on every
 * thread of the call, also on error paths. */
void volta_pool_barrier(volta_pool *pool);

/* The contiguous share [first, last) of `count` units that belongs to `thread` of `threads`. */
static inline void volta_share(int64_t count, int thread, int threads, int64_t *first,
                               int64_t *last) {
  *first = count * thread / threads;
  *last = count * (thread + 1) / threads;
}

static inline int64_t volta_align(int64_t bytes) {
  return (bytes + VOLTA_ALIGNMENT - 1) / VOLTA_ALIGNMENT * VOLTA_ALIGNMENT;
}

static inline int64_t volta_numel(const volta_operand *operand) {
  int64_t count = 1;
  for (int32_t axis = 0; axis < operand->rank; axis++) count *= operand->shape[axis];
  return count;
}

/* Records the first failure of a call and returns its status. */
int volta_fail(const volta_call *call, int status, int64_t detail0, int64_t detail1);

/* --- cpu/chain.h: elementwise chains, also run by matmul on each finished tile ----------------------- */
/* One register over a block of rows: rows of f32 where they are, or a tile that they are gathered,
 * spread or widened into, and outputs in bf16 rounded from. */
typedef struct {
  char *at; /* element 0 of row 0; not read where only the tile counts */
  int64_t row; /* bytes from row to row */
  int64_t move; /* elements from column to column */
  int32_t dtype;
  float *tile; /* NULL: the register is the operand, whose `move` is 1 */
} volta_chain_register;

/* Runs the step's instructions over `rows` rows of n elements, rows * n <= VOLTA_TILE. Registers: the
 * step's operands, then its temporaries; those with neither `at` nor tile take no part. */
typedef void (*volta_chain_rows)(const volta_call *call, const volta_chain_register *registers,
                                 int64_t rows, int64_t n);
extern const volta_chain_rows volta_chain_rows_of[VOLTA_ISA_COUNT];

/* --- targets.c: which kernel runs, per instruction set ------------------------------------------ */
typedef struct {
  volta_kernel run;
  volta_workspace workspace; /* NULL: none */
} volta_kernel_row;
extern const volta_kernel_row *const volta_targets[VOLTA_ISA_COUNT];

enum {
#define VOLTA_KERNEL(NAME, name) VOLTA_KERNEL_##NAME,
#include "kernels.def"
#undef VOLTA_KERNEL
  VOLTA_KERNEL_COUNT
};

#endif
