#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target( \
    "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,avx2,fma,prefer-vector-width=512")
/* N9 by VDPBF16PS and N10 by VPDPBUSD, on processors with AVX-512 that have them. */
#include "../simd/matmul_bf16.h"
#include "../simd/matmul_i8.h"

const volta_matmul_code volta_bf16_avx512_dot = {
    .kind = VOLTA_CODE_BF16,
    .isa = VOLTA_ISA_AVX512,
    .needs = VOLTA_NEEDS_BF16_DOT,
    .width = WIDTH,
    .unit = BLOCK_K,
    .k_bytes_a = 4 * BLOCK_WORDS / BLOCK_K,
    .k_bytes_b = 4 * BLOCK_WORDS / BLOCK_K,
    .rate = 2,
    .flushes = 1,
    CHAIN_TILES,
    .pack_a = pack_a_bf16,
    .pack_b = pack_b_bf16,
};

/* The order, fusion, rounding and flushing of the instruction are what Intel's manual says of it; this
 * asks the processor, on sums where any other order or rounding gives other bits. */
int volta_bf16_dot_is_n9(void) {
  uint32_t state = 0x2545f491u, flushes = _mm_getcsr();
  int equal = 1;
  _mm_setcsr(flushes | 0x8040);
  for (int round = 0; round < 64; round++) {
    uint16_t a[32], b[32];
    float sum[16], found[16];
    for (int i = 0; i < 32; i++) {
      state = state * 1664525u + 1013904223u;
      a[i] = (uint16_t)((state >> 16 & 0x8000u) | (118u + (state >> 8 & 15u)) << 7 |
                        (state >> 24 & 127u));
      state = state * 1664525u + 1013904223u;
      b[i] = (uint16_t)((state >> 16 & 0x8000u) | (118u + (state >> 8 & 15u)) << 7 |
                        (state >> 24 & 127u));
      if (round % 4 == 0) a[i] &= 0x87ffu; /* products that are subnormal, or flushed operands */
      if (i < 16) sum[i] = round % 4 == 0 ? 0.0f : volta_f32_from_bf16(a[i]) * 0.7f;
    }
    vector chain = vector_load(sum);
    chain =
        _mm512_dpbf16_ps(chain, (__m512bh)_mm512_loadu_si512(a), (__m512bh)_mm512_loadu_si512(b));
    vector_store(found, chain);
    for (int i = 0; i < 16; i++) {
      const __m128 upper =
          _mm_fmadd_ss(_mm_set_ss(volta_f32_from_bf16(a[2 * i + 1])),
                       _mm_set_ss(volta_f32_from_bf16(b[2 * i + 1])), _mm_set_ss(sum[i]));
      const float wanted =
          _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(volta_f32_from_bf16(a[2 * i])),
                                     _mm_set_ss(volta_f32_from_bf16(b[2 * i])), upper));
      equal &= __builtin_memcmp(&wanted, &found[i], sizeof wanted) == 0;
    }
  }
  _mm_setcsr(flushes);
  return equal;
}

const volta_matmul_code volta_i8_avx512_vnni = {
    .kind = VOLTA_CODE_I8,
    .isa = VOLTA_ISA_AVX512,
    .needs = VOLTA_NEEDS_VNNI,
    .width = WIDTH,
    .unit = WORD_K,
    .k_bytes_a = WORD_BYTES,
    .k_bytes_b = WORD_BYTES,
    .extra = 4,
    .rate = 4,
    WORD_TILES,
    .pack_a = pack_a_i8,
    .pack_b = pack_b_i8,
};
#endif
