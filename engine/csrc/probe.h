/* What the machine can do at most: the ceilings that benchmarks compare with. */
#ifndef VOLTA_PROBE_H
#define VOLTA_PROBE_H

#include <stdint.h>

/* What a probe repeats: arithmetic on registers, or one walk over `bytes` of memory. */
typedef enum {
  VOLTA_PROBE_FMA,     /* fused multiply-adds of f32 vectors */
  VOLTA_PROBE_ADD,     /* additions of f32 vectors */
  VOLTA_PROBE_DIVIDE,  /* divisions of f32 vectors */
  VOLTA_PROBE_SQRT,    /* square roots of f32 vectors */
  VOLTA_PROBE_BF16,    /* the widest bf16 product: AMX tiles, VDPBF16PS */
  VOLTA_PROBE_I8,      /* the widest int8 product: AMX tiles, VPDPBUSD */
  VOLTA_PROBE_READ,
  VOLTA_PROBE_WRITE,
  VOLTA_PROBE_COPY,    /* the first half of the memory to the second */
  VOLTA_PROBE_BARRIER, /* all threads meet */
  VOLTA_PROBE_COUNT
} volta_probe_kind;

/* Operations (bytes for the walks, meetings for the barrier) of one repeat on one thread: a fused
 * multiply-add counts two. 0 where this processor has no such instruction under `isa`. */
int64_t volta_probe_work(int kind, int isa, int64_t bytes);
/* Repeats it on every thread at the same time, each over `bytes` of memory of its own (memory holds
 * threads * bytes, 64-byte aligned); *seconds is what the slowest took. A volta_status. */
int volta_probe_run(int kind, int isa, int threads, void *memory, int64_t bytes, int64_t repeats,
                    double *seconds);

/* --- one per instruction set --- */
typedef struct {
  int64_t work[VOLTA_PROBE_COUNT]; /* of one repeat; 0: none; the walks count bytes themselves */
  void (*run)(int kind, char *memory, int64_t bytes, int64_t repeats);
} volta_probe_set;

extern const volta_probe_set volta_probe_ref, volta_probe_avx2, volta_probe_avx512;
extern const volta_probe_set volta_probe_dot, volta_probe_amx;

#endif
