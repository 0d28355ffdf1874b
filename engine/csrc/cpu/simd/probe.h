/* Probes over vectors: independent chains, enough of them to hide every latency. The including file sets
 * its target and names the set (PROBE_SET). */
#include <string.h>

#include "../../probe.h"
#include "matmul_vector.h"

#if WIDTH == 16
#define CHAINS 24
#define vector_div _mm512_div_ps
#define vector_sqrt _mm512_sqrt_ps
#define vector_xor(a, b) _mm512_xor_ps(a, b)
#else
#define CHAINS 12
#define vector_div _mm256_div_ps
#define vector_sqrt _mm256_sqrt_ps
#define vector_xor(a, b) _mm256_xor_ps(a, b)
#endif
#define STEPS 64 /* of every chain in one repeat */

#define CHAIN_LOOP(expression) \
  for (int64_t r = 0; r < repeats; r++) \
    for (int s = 0; s < STEPS; s++) { \
      _Pragma("GCC unroll 32") for (int i = 0; i < CHAINS; i++) c[i] = expression; \
    }

static void walk_read(const char *memory, int64_t bytes, int64_t repeats, vector *c) {
  for (int64_t r = 0; r < repeats; r++)
    for (int64_t at = 0; at + 512 <= bytes; at += 512) {
      _Pragma("GCC unroll 16") for (int i = 0; i < 512 / (4 * WIDTH); i++) c[i % 8] =
          vector_xor(c[i % 8], vector_load((const float *)(memory + at) + i * WIDTH));
    }
}

static void walk_write(char *memory, int64_t bytes, int64_t repeats, vector value) {
  for (int64_t r = 0; r < repeats; r++) {
    for (int64_t at = 0; at + 512 <= bytes; at += 512) {
      _Pragma("GCC unroll 16") for (int i = 0; i < 512 / (4 * WIDTH); i++)
          vector_store((float *)(memory + at) + i * WIDTH, value);
    }
    __asm__ volatile("" ::: "memory"); /* each walk is to happen */
  }
}

static void walk_copy(char *memory, int64_t bytes, int64_t repeats) {
  const int64_t half = bytes / 1024 * 512;
  for (int64_t r = 0; r < repeats; r++) {
    for (int64_t at = 0; at < half; at += 512) {
      _Pragma("GCC unroll 16") for (int i = 0; i < 512 / (4 * WIDTH); i++)
          vector_store((float *)(memory + half + at) + i * WIDTH,
                       vector_load((const float *)(memory + at) + i * WIDTH));
    }
    __asm__ volatile("" ::: "memory");
  }
}

static void probe_run(int kind, char *memory, int64_t bytes, int64_t repeats) {
  static const volatile float one = 1.0f, small = 1e-9f;
  const float first = one, second = small;
  const vector x = vector_splat(&first), y = vector_splat(&second);
  vector c[CHAINS];
  for (int i = 0; i < CHAINS; i++) c[i] = x;
  if (kind == VOLTA_PROBE_FMA) CHAIN_LOOP(vector_fma(c[i], x, y));
  if (kind == VOLTA_PROBE_ADD) CHAIN_LOOP(vector_add(c[i], y));
  if (kind == VOLTA_PROBE_DIVIDE) CHAIN_LOOP(vector_div(c[i], x));
  if (kind == VOLTA_PROBE_SQRT) CHAIN_LOOP(vector_sqrt(c[i]));
  if (kind == VOLTA_PROBE_READ) walk_read(memory, bytes, repeats, c);
  if (kind == VOLTA_PROBE_WRITE) walk_write(memory, bytes, repeats, x);
  if (kind == VOLTA_PROBE_COPY) walk_copy(memory, bytes, repeats);
  static volatile float sink; /* the results are wanted */
  float total[WIDTH];
  for (int i = 1; i < CHAINS; i++) c[0] = vector_add(c[0], c[i]);
  vector_store(total, c[0]);
  sink = total[0];
  (void)sink;
}

const volta_probe_set PROBE_SET = {
    .work = {[VOLTA_PROBE_FMA] = (int64_t)2 * WIDTH * CHAINS * STEPS,
             [VOLTA_PROBE_ADD] = (int64_t)WIDTH * CHAINS * STEPS,
             [VOLTA_PROBE_DIVIDE] = (int64_t)WIDTH * CHAINS * STEPS,
             [VOLTA_PROBE_SQRT] = (int64_t)WIDTH * CHAINS * STEPS},
    .run = probe_run,
};
