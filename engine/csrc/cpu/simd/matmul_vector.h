/* Registers as the matmul codes see them: one text for 256 and 512 bits. The including file sets its
 * target pragma first. */
#ifndef VOLTA_SIMD_MATMUL_VECTOR_H
#define VOLTA_SIMD_MATMUL_VECTOR_H

#include <immintrin.h>

#include "../../volta.h"
#include "../bfloat16.h"

#if defined(__AVX512F__)
#define WIDTH 16
typedef __m512 vector;
typedef __m512i vector_i32;
typedef __mmask16 vector_mask;
#define vector_zero _mm512_setzero_ps
#define vector_load _mm512_loadu_ps
#define vector_store _mm512_storeu_ps
#define vector_fma _mm512_fmadd_ps
#define vector_add _mm512_add_ps
#define vector_mul _mm512_mul_ps
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
/* Exact: a bf16 is the upper half of an f32. */
static inline vector vector_from_bf16(const uint16_t *x) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)x));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline vector vector_from_i8(const int8_t *x) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)x)));
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
#else
#define WIDTH 8
typedef __m256 vector;
typedef __m256i vector_i32;
typedef __m256i vector_mask;
#define vector_zero _mm256_setzero_ps
#define vector_load _mm256_loadu_ps
#define vector_store _mm256_storeu_ps
#define vector_fma _mm256_fmadd_ps
#define vector_add _mm256_add_ps
#define vector_mul _mm256_mul_ps
#define vector_load_masked _mm256_maskload_ps
static inline vector vector_splat(const float *x) { return _mm256_broadcast_ss(x); }
static inline vector_mask vector_mask_of(int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)count),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline void vector_store_masked(float *x, vector value, vector_mask mask) {
  _mm256_maskstore_ps(x, mask, value);
}
static inline vector vector_from_bf16(const uint16_t *x) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)x));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline vector vector_from_i8(const int8_t *x) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)x)));
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
#endif

static inline int64_t bytes_of(int32_t dtype) {
  return dtype == VOLTA_I8 ? 1 : dtype == VOLTA_BF16 ? 2 : 4;
}

/* One element of B, whatever it holds, as f32: exact. */
static inline float widen(const void *x, int32_t dtype) {
  if (dtype == VOLTA_F32) return *(const float *)x;
  if (dtype == VOLTA_I8) return (float)*(const int8_t *)x;
  return volta_f32_from_bf16(*(const uint16_t *)x);
}

/* The first `count` <= WIDTH elements of a row of B as f32; the rest +0. */
static inline vector vector_widen_first(const void *x, int32_t dtype, int64_t count) {
  float wide[WIDTH] = {0};
  for (int64_t i = 0; i < count; i++) wide[i] = widen((const char *)x + i * bytes_of(dtype), dtype);
  return vector_load(wide);
}

/* WIDTH elements of a row of B as f32: exact for every dtype. */
static inline __attribute__((always_inline)) vector vector_widen(const void *x, int32_t dtype) {
  if (dtype == VOLTA_BF16) return vector_from_bf16(x);
  if (dtype == VOLTA_I8) return vector_from_i8(x);
  return vector_load(x);
}

#endif
