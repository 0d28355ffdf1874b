#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target("avx2,fma,prefer-vector-width=256")
/* N1 with 256-bit vectors: 6 x 16 tiles, 12 sums of the 16 registers. */
#include <immintrin.h>

#include "../../volta.h"

typedef __m256 vector;
typedef __m256i vector_mask;
#define WIDTH 8
#define vector_zero _mm256_setzero_ps
#define vector_load _mm256_loadu_ps
#define vector_store _mm256_storeu_ps
#define vector_fma _mm256_fmadd_ps
#define vector_load_masked _mm256_maskload_ps
static inline vector vector_splat(const float *x) { return _mm256_broadcast_ss(x); }
static inline vector_mask vector_mask_of(int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)count),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline void vector_store_masked(float *x, vector value, vector_mask mask) {
  _mm256_maskstore_ps(x, mask, value);
}

/* 8 x 8: 4 x 4 blocks within 128-bit lanes, then the lanes are exchanged. */
static inline __attribute__((always_inline)) void vector_transpose(vector r[8]) {
  vector s[8];
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    const vector a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
    const vector c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]),
                 d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
    s[i] = _mm256_shuffle_ps(a, c, 0x44), s[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    s[i + 2] = _mm256_shuffle_ps(b, d, 0x44), s[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    r[i] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x31);
  }
}

/* Rows of B taken together by few rows: rows * depth broadcasts fit the registers. */
#define FEW_ROWS 4
#define FEW_DEPTH_1 8
#define FEW_DEPTH_2 4
#define FEW_DEPTH_3 3
#define FEW_DEPTH_4 2

#include "../simd/matmul_tile.h"

#define TILES(V) TILE(1, V) TILE(2, V) TILE(3, V) TILE(4, V) TILE(5, V) TILE(6, V)
TILES(1)
TILES(2)
#define ROW(V, M) \
  {tile_1_##V##M, tile_2_##V##M, tile_3_##V##M, tile_4_##V##M, tile_5_##V##M, tile_6_##V##M}
static const tile_function tile_table[2][2][6] = {{ROW(1, ), ROW(2, )},
                                                  {ROW(1, _masked), ROW(2, _masked)}};

#include "../simd/matmul.h"

static const volta_matmul_blocks matmul_blocks =
    /* mr nr kc mc nc few wide */
    {6, 16, 512, 168, 2048, 3, 8};

int64_t volta_matmul_workspace_avx2(const volta_step *step, const volta_operand *operand,
                                    int threads);
int volta_matmul_avx2(const volta_call *call);

int64_t volta_matmul_workspace_avx2(const volta_step *step, const volta_operand *operand,
                                    int threads) {
  if (!volta_matmul_fits(step, operand)) return 0; /* the kernel will refuse it */
  const matmul_plan w = plan_matmul(step, operand, threads, &matmul_blocks, FEW_ROWS);
  return plan_bytes(&w, threads);
}

int volta_matmul_avx2(const volta_call *call) {
  return run_matmul(call, &matmul_blocks, volta_chain_tile_of[VOLTA_ISA_AVX2]);
}
#endif
