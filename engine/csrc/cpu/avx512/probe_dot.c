#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target( \
    "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,avx2,fma,prefer-vector-width=512")
/* The products of pairs of bf16 and of quadruples of int8. */
#include <immintrin.h>

#include "../../probe.h"

#define CHAINS 24
#define STEPS 64

static void probe_run(int kind, char *memory, int64_t bytes, int64_t repeats) {
  static volatile int32_t sink;
  static const volatile int32_t word = 0x3f803f80;
  const __m512i x = _mm512_set1_epi32(word);
  __m512i c[CHAINS];
  (void)memory, (void)bytes;
  for (int i = 0; i < CHAINS; i++) c[i] = _mm512_set1_epi32(i);
  for (int64_t r = 0; r < repeats; r++)
    for (int s = 0; s < STEPS; s++) {
#pragma GCC unroll 32
      for (int i = 0; i < CHAINS; i++)
        c[i] = kind == VOLTA_PROBE_I8 ? _mm512_dpbusd_epi32(c[i], x, x)
                                      : _mm512_castps_si512(_mm512_dpbf16_ps(
                                            _mm512_castsi512_ps(c[i]), (__m512bh)x, (__m512bh)x));
    }
  for (int i = 1; i < CHAINS; i++) c[0] = _mm512_add_epi32(c[0], c[i]);
  sink = _mm512_reduce_add_epi32(c[0]);
  (void)sink;
}

const volta_probe_set volta_probe_dot = {
    .work = {[VOLTA_PROBE_BF16] = (int64_t)2 * 32 * CHAINS * STEPS,
             [VOLTA_PROBE_I8] = (int64_t)2 * 64 * CHAINS * STEPS},
    .run = probe_run,
};
#endif
