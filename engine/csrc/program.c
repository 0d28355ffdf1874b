/* Copies, runs and times a program. What makes it valid is in verify.c. */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "program.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "pool.h"
#include "verify.h"

#define VOLTA_HUGE_PAGE ((int64_t)2 << 20)

struct volta_program {
  volta_step *steps;
  volta_operand *operands;
  volta_instruction *instructions;
  volta_extent *extents; /* [n_buffers] */
  int64_t *step_end;     /* [n_steps] end of the arena bytes that the step uses */
  volta_error *errors;   /* [threads] the first failure of each thread */
  void **data;           /* [threads, max_operands] */
  char *arena;
  int64_t arena_bytes, high_water;
  int32_t n_steps, n_buffers, max_operands;
  int isa, threads;
  /* Of the run in progress. */
  void *const *buffers;
  double *stamps;
  double origin; /* the time that stamps count from */
  int32_t first, last; /* the steps to run */
  int32_t failed_step; /* the lowest so far; n_steps: none */
};

int volta_fail(const volta_call *call, int status, int64_t detail0, int64_t detail1) {
  volta_error *error = call->error;
  if (error->status == VOLTA_OK) {
    error->detail[0] = detail0;
    error->detail[1] = detail1;
    error->status = status;
  }
  return status;
}

static void *copy_of(const void *source, size_t count, size_t size) {
  void *copy = calloc(count + 1, size);
  if (copy != NULL && count > 0) memcpy(copy, source, count * size);
  return copy;
}

static char *allocate_arena(int64_t bytes) {
  size_t alignment = bytes >= 2 * VOLTA_HUGE_PAGE ? VOLTA_HUGE_PAGE : VOLTA_ALIGNMENT;
  size_t size = ((size_t)bytes + alignment) / alignment * alignment;
  char *arena = aligned_alloc(alignment, size);
#if defined(MADV_HUGEPAGE)
  if (arena != NULL && alignment == VOLTA_HUGE_PAGE) (void)madvise(arena, size, MADV_HUGEPAGE);
#endif
  return arena;
}

void volta_program_free(volta_program *program) {
  if (program == NULL) return;
  free(program->steps);
  free(program->operands);
  free(program->instructions);
  free(program->extents);
  free(program->step_end);
  free(program->errors);
  free(program->data);
  free(program->arena);
  free(program);
}

static int build(volta_program *p, const volta_tables *tables) {
  for (int32_t i = 0; i < tables->n_steps; i++) {
    if (tables->steps[i].n_operands > p->max_operands) {
      p->max_operands = tables->steps[i].n_operands;
    }
  }
  p->steps = copy_of(tables->steps, (size_t)tables->n_steps, sizeof *p->steps);
  p->operands = copy_of(tables->operands, (size_t)tables->n_operands, sizeof *p->operands);
  p->instructions =
      copy_of(tables->instructions, (size_t)tables->n_instructions, sizeof *p->instructions);
  p->errors = calloc((size_t)tables->threads, sizeof *p->errors);
  p->data = calloc((size_t)tables->threads * (size_t)(p->max_operands + 1), sizeof *p->data);
  p->arena = allocate_arena(tables->arena_bytes);
  return p->steps && p->operands && p->instructions && p->errors && p->data && p->arena;
}

volta_program *volta_program_new(const volta_step *steps, int32_t n_steps,
                                 const volta_operand *operands, int32_t n_operands,
                                 const volta_instruction *instructions, int32_t n_instructions,
                                 int32_t n_buffers, int64_t arena_bytes, int isa, int threads,
                                 volta_error *error) {
  const volta_tables tables = {steps,          operands,  instructions, n_steps, n_operands,
                               n_instructions, n_buffers, arena_bytes,  isa,     threads};
  memset(error, 0, sizeof *error);
  if (volta_verify_sizes(&tables, error) != VOLTA_OK) return NULL;
  volta_program *p = calloc(1, sizeof *p);
  if (p != NULL) {
    p->n_steps = n_steps;
    p->n_buffers = n_buffers;
    p->arena_bytes = arena_bytes;
    p->isa = isa;
    p->threads = threads;
    p->extents = calloc((size_t)n_buffers, sizeof *p->extents);
    p->step_end = calloc((size_t)n_steps + 1, sizeof *p->step_end);
  }
  if (p == NULL || p->extents == NULL || p->step_end == NULL) {
    error->status = VOLTA_NO_MEMORY;
  } else if (volta_verify_steps(&tables, p->extents, p->step_end, error) == VOLTA_OK &&
             !build(p, &tables)) {
    error->status = VOLTA_NO_MEMORY;
    error->detail[0] = arena_bytes;
  }
  if (error->status == VOLTA_OK) return p;
  volta_program_free(p);
  return NULL;
}

/* --- run -------------------------------------------------------------------------------------- */

typedef struct {
  volta_program *program;
  void *const *buffers;
  int32_t first, last;
  double *stamps; /* NULL: not traced */
  volta_error *error;
} run;

/* The threads must agree on where they stop, although one may already fail in a later step while
 * another still looks. So the question is not "has anything failed?" but "has a step before this
 * one failed?": all its answers were recorded before the barrier that every thread just passed. */
static int failed_before(volta_program *p, int32_t step) {
  return __atomic_load_n(&p->failed_step, __ATOMIC_ACQUIRE) < step;
}

static void record_failure(volta_program *p, volta_error *error, int status, int32_t step) {
  if (error->status == VOLTA_OK) error->status = status;
  error->step = step;
  int32_t lowest = __atomic_load_n(&p->failed_step, __ATOMIC_RELAXED);
  while (step < lowest && !__atomic_compare_exchange_n(&p->failed_step, &lowest, step, 0,
                                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {}
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void run_steps(volta_program *p, int thread, int threads, volta_pool *pool) {
  void **data = p->data + (size_t)thread * (size_t)(p->max_operands + 1);
  volta_error *error = &p->errors[thread];
  for (int32_t i = p->first; i < p->last; i++) {
    const volta_step *step = &p->steps[i];
    double *stamp = p->stamps == NULL ? NULL : p->stamps + 2 * ((int64_t)thread * p->n_steps + i);
    if (step->barrier) {
      volta_pool_barrier(pool);
      if (failed_before(p, i)) return;
    }
    if (thread == 0 && p->step_end[i] > p->high_water) p->high_water = p->step_end[i];
    if (stamp != NULL) stamp[0] = now() - p->origin;
    const volta_operand *operand = p->operands + step->first_operand;
    for (int32_t o = 0; o < step->n_operands; o++) {
      char *base = operand[o].buffer == 0 ? p->arena : p->buffers[operand[o].buffer];
      data[o] = base + operand[o].offset;
    }
    const volta_call call = {
        .step = step,
        .operand = operand,
        .data = data,
        .code = p->instructions + step->first_instruction,
        .workspace = p->arena + step->workspace,
        .thread = thread,
        .threads = threads,
        .isa = p->isa,
        .pool = pool,
        .error = error,
    };
    int status = volta_targets[p->isa][step->kernel].run(&call);
    if (status == VOLTA_OK) status = error->status;
    if (status != VOLTA_OK && error->step < 0) record_failure(p, error, status, i);
    if (stamp != NULL) stamp[1] = now() - p->origin;
  }
}

/* The fields of a run are set by thread 0 inside the pool's lock, before the first barrier. */
static void run_program(void *argument, int thread, int threads, volta_pool *pool) {
  run *r = argument;
  volta_program *p = r->program;
  if (thread == 0) {
    if (r->first == 0) p->high_water = 0;
    p->buffers = r->buffers;
    p->first = r->first;
    p->last = r->last;
    p->stamps = r->stamps;
    p->origin = now();
    p->failed_step = p->n_steps;
    for (int t = 0; t < threads; t++) p->errors[t] = (volta_error){.step = -1};
  }
  volta_pool_barrier(pool);
  run_steps(p, thread, threads, pool);
  volta_pool_barrier(pool);
  for (int t = threads - 1; thread == 0 && t >= 0; t--) {
    if (p->errors[t].step >= 0 && p->errors[t].step == p->failed_step) *r->error = p->errors[t];
  }
}

int volta_program_run(volta_program *program, void *const *buffers, int32_t first, int32_t last,
                      double *stamps, volta_error *error) {
  run r = {program, buffers, first, last, stamps, error};
  *error = (volta_error){.step = -1};
  if (first < 0 || first > last || last > program->n_steps)
    return error->status = VOLTA_BAD_PROGRAM;
  int status = volta_pool_run(run_program, &r, program->threads);
  if (error->status == VOLTA_OK) error->status = status;
  return error->status;
}

/* --- questions -------------------------------------------------------------------------------- */

int64_t volta_program_buffer_bytes(const volta_program *program, int32_t buffer) {
  if (buffer < 0 || buffer >= program->n_buffers) return -1;
  return program->extents[buffer].end;
}

int volta_program_buffer_written(const volta_program *program, int32_t buffer) {
  return buffer >= 0 && buffer < program->n_buffers && program->extents[buffer].written;
}

void *volta_program_arena(volta_program *program) { return program->arena; }

int64_t volta_program_high_water(const volta_program *program) { return program->high_water; }
