#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
/* N1 with 512-bit vectors: 14 x 32 tiles, 28 sums of the 32 registers. */
#include <immintrin.h>

#include "../../volta.h"

typedef __m512 vector;
typedef __mmask16 vector_mask;
#define WIDTH 16
#define vector_zero _mm512_setzero_ps
#define vector_load _mm512_loadu_ps
#define vector_store _mm512_storeu_ps
#define vector_fma _mm512_fmadd_ps
static inline vector vector_splat(const float *x) { return _mm512_set1_ps(*x); }
static inline vector_mask vector_mask_of(int64_t count) {
  return (vector_mask)((1u << count) - 1u);
}
static inline vector vector_load_masked(const float *x, vector_mask mask) {
  return _mm512_maskz_loadu_ps(mask, x);
}
static inline void vector_store_masked(float *x, vector value, vector_mask mask) {
  _mm512_mask_storeu_ps(x, mask, value);
}

/* 16 x 16: 4 x 4 blocks within 128-bit lanes, then the lanes as a 4 x 4 matrix. */
static inline __attribute__((always_inline)) void vector_transpose(vector r[16]) {
  vector s[16];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const vector a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
    const vector c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]),
                 d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
    s[i] = _mm512_shuffle_ps(a, c, 0x44), s[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
    s[i + 2] = _mm512_shuffle_ps(b, d, 0x44), s[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const vector a = _mm512_shuffle_f32x4(s[i], s[i + 4], 0x88),
                 b = _mm512_shuffle_f32x4(s[i], s[i + 4], 0xdd);
    const vector c = _mm512_shuffle_f32x4(s[i + 8], s[i + 12], 0x88);
    const vector d = _mm512_shuffle_f32x4(s[i + 8], s[i + 12], 0xdd);
    r[i] = _mm512_shuffle_f32x4(a, c, 0x88), r[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
    r[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88), r[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
}

/* Rows of B taken together by few rows: rows * depth broadcasts fit the registers. */
#define FEW_ROWS 8
#define FEW_DEPTH_1 8
#define FEW_DEPTH_2 8
#define FEW_DEPTH_3 6
#define FEW_DEPTH_4 4
#define FEW_DEPTH_5 4
#define FEW_DEPTH_6 3
#define FEW_DEPTH_7 3
#define FEW_DEPTH_8 2

#include "../simd/matmul_tile.h"

#define TILES_TO_7(V) TILE(1, V) TILE(2, V) TILE(3, V) TILE(4, V) TILE(5, V) TILE(6, V) TILE(7, V)
#define TILES_TO_14(V) \
  TILE(8, V) TILE(9, V) TILE(10, V) TILE(11, V) TILE(12, V) TILE(13, V) TILE(14, V)
TILES_TO_7(1)
TILES_TO_14(1)
TILES_TO_7(2)
TILES_TO_14(2)
#define ROW(V, M) \
  {tile_1_##V##M,  tile_2_##V##M,  tile_3_##V##M,  tile_4_##V##M, tile_5_##V##M, \
   tile_6_##V##M,  tile_7_##V##M,  tile_8_##V##M,  tile_9_##V##M, tile_10_##V##M, \
   tile_11_##V##M, tile_12_##V##M, tile_13_##V##M, tile_14_##V##M}
static const tile_function tile_table[2][2][14] = {{ROW(1, ), ROW(2, )},
                                                   {ROW(1, _masked), ROW(2, _masked)}};

#include "../simd/matmul.h"

static const volta_matmul_blocks matmul_blocks =
    /* mr nr kc mc nc few wide */
    {14, 32, 512, 168, 2048, 3, 8};

int64_t volta_matmul_workspace_avx512(const volta_step *step, const volta_operand *operand,
                                      int threads);
int volta_matmul_avx512(const volta_call *call);

int64_t volta_matmul_workspace_avx512(const volta_step *step, const volta_operand *operand,
                                      int threads) {
  if (!volta_matmul_fits(step, operand)) return 0; /* the kernel will refuse it */
  const matmul_plan w = plan_matmul(step, operand, threads, &matmul_blocks, FEW_ROWS);
  return plan_bytes(&w, threads);
}

int volta_matmul_avx512(const volta_call *call) {
  return run_matmul(call, &matmul_blocks, volta_chain_tile_of[VOLTA_ISA_AVX512]);
}
#endif
