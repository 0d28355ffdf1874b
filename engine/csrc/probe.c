#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "probe.h"

#include <time.h>

#include "cpu_info.h"
#include "cpu/matmul_tile.h"
#include "cpu/x86.h"
#include "pool.h"

typedef struct {
  const volta_probe_set *set;
  int kind;
  char *memory;
  int64_t bytes, repeats;
  double seconds[VOLTA_MAX_THREADS];
} probe;

/* The set that has this kind under this instruction set; NULL: none. */
static const volta_probe_set *find(int kind, int isa) {
  if (kind < 0 || kind >= VOLTA_PROBE_COUNT || isa < 0 || !volta_cpu_isa_supported(isa))
    return NULL;
#if defined(VOLTA_X86)
  const int wide = isa == VOLTA_ISA_AVX512 || isa == VOLTA_ISA_AMX;
  if (kind == VOLTA_PROBE_BF16 || kind == VOLTA_PROBE_I8) {
    if (isa == VOLTA_ISA_AMX) return &volta_probe_amx;
    const int needs = kind == VOLTA_PROBE_BF16 ? VOLTA_NEEDS_BF16_DOT : VOLTA_NEEDS_VNNI;
    return wide && volta_cpu_has(needs) && volta_cpu_has(VOLTA_NEEDS_BF16_DOT) ? &volta_probe_dot
                                                                               : NULL;
  }
  if (wide) return &volta_probe_avx512;
  if (isa == VOLTA_ISA_AVX2) return &volta_probe_avx2;
#else
  if (kind == VOLTA_PROBE_BF16 || kind == VOLTA_PROBE_I8) return NULL;
#endif
  return &volta_probe_ref;
}

int64_t volta_probe_work(int kind, int isa, int64_t bytes) {
  const volta_probe_set *set = find(kind, isa);
  if (set == NULL) return 0;
  if (kind == VOLTA_PROBE_BARRIER) return 1;
  if (kind == VOLTA_PROBE_READ || kind == VOLTA_PROBE_WRITE || kind == VOLTA_PROBE_COPY)
    return bytes / 512 * 512;
  return set->work[kind];
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void run_probe(void *argument, int thread, int threads, volta_pool *pool) {
  probe *p = argument;
  (void)threads;
  volta_pool_barrier(pool);
  const double start = now();
  if (p->kind == VOLTA_PROBE_BARRIER) {
    for (int64_t i = 0; i < p->repeats; i++) volta_pool_barrier(pool);
  } else {
    p->set->run(p->kind, p->memory + thread * p->bytes, p->bytes, p->repeats);
  }
  p->seconds[thread] = now() - start;
}

int volta_probe_run(int kind, int isa, int threads, void *memory, int64_t bytes, int64_t repeats,
                    double *seconds) {
  probe p = {find(kind, isa), kind, memory, bytes, repeats, {0}};
  if (p.set == NULL || threads < 1 || threads > VOLTA_MAX_THREADS || bytes < 0 || repeats < 0)
    return VOLTA_BAD_PROGRAM;
  const int status = volta_pool_run(run_probe, &p, threads);
  *seconds = 0.0;
  for (int thread = 0; thread < threads; thread++)
    if (p.seconds[thread] > *seconds) *seconds = p.seconds[thread];
  return status;
}
