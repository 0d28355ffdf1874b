/* Probes of plain C, one number at a time: what the reference kernels can reach. */
#include <math.h>
#include <string.h>

#include "../../probe.h"

#define CHAINS 8
#define STEPS 64

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-vectorize")
#endif

static void probe_run(int kind, char *memory, int64_t bytes, int64_t repeats) {
  static volatile float one = 1.0f, small = 1e-9f, sink;
  const float x = one, y = small;
  float c[CHAINS];
  uint64_t bits = 0;
  const int64_t half = bytes / 1024 * 512;
  for (int i = 0; i < CHAINS; i++) c[i] = x;
  for (int64_t r = 0; r < repeats; r++) {
    for (int s = 0; s < STEPS && kind <= VOLTA_PROBE_SQRT; s++)
      for (int i = 0; i < CHAINS; i++)
        c[i] = kind == VOLTA_PROBE_FMA      ? fmaf(c[i], x, y)
               : kind == VOLTA_PROBE_ADD    ? c[i] + y
               : kind == VOLTA_PROBE_DIVIDE ? c[i] / x
                                            : sqrtf(c[i]);
    if (kind == VOLTA_PROBE_READ)
      for (int64_t at = 0; at + 8 <= bytes; at += 8) bits ^= *(const uint64_t *)(memory + at);
    if (kind == VOLTA_PROBE_WRITE) memset(memory, (int)r, (size_t)bytes);
    if (kind == VOLTA_PROBE_COPY) memcpy(memory + half, memory, (size_t)half);
    __asm__ volatile("" ::: "memory");
  }
  for (int i = 0; i < CHAINS; i++) sink = sink + c[i];
  sink = sink + (float)bits;
}

const volta_probe_set volta_probe_ref = {
    .work = {[VOLTA_PROBE_FMA] = 2 * CHAINS * STEPS,
             [VOLTA_PROBE_ADD] = CHAINS * STEPS,
             [VOLTA_PROBE_DIVIDE] = CHAINS * STEPS,
             [VOLTA_PROBE_SQRT] = CHAINS * STEPS},
    .run = probe_run,
};
