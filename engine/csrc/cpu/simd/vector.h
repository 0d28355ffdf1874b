/* One block: the 32 elements that N2 spreads over its 32 lanes, as 2 AVX-512 or 4 AVX2 registers.
 * The row kernels are written over blocks, so they have one text for both widths.
 *
 * The including file sets VOLTA_ISA (avx2 or avx512) and its target pragma first. */
#ifndef VOLTA_SIMD_VECTOR_H
#define VOLTA_SIMD_VECTOR_H

#include <immintrin.h>

#include "../../vmath.h"
#include "../../volta.h"

#define VOLTA_JOIN_(name, isa) volta_##name##_##isa
#define VOLTA_JOIN(name, isa) VOLTA_JOIN_(name, isa)
#define VOLTA_ISA_NAME(name) VOLTA_JOIN(name, VOLTA_ISA)

/* --- one register ---------------------------------------------------------------------------- */
#if defined(__AVX512F__)
#define VOLTA_WIDTH 16
typedef __m512 volta_vector;
#define VECTOR(op) _mm512_##op
#else
#define VOLTA_WIDTH 8
typedef __m256 volta_vector;
#define VECTOR(op) _mm256_##op
#endif
#define VOLTA_PARTS (VOLTA_LANES / VOLTA_WIDTH)

typedef struct {
  volta_vector part[VOLTA_PARTS];
} volta_block;

/* The body for each part p of a block. */
#define VOLTA_EACH_PART _Pragma("GCC unroll 4") for (int p = 0; p < VOLTA_PARTS; p++)

/* --- the first n elements of a register; n may be negative or exceed the width --------------- */
#if defined(__AVX512F__)
typedef __mmask16 volta_mask;

static inline volta_mask mask_first(int64_t n) {
  return n <= 0 ? 0 : n >= 16 ? 0xffff : (volta_mask)((1u << n) - 1);
}

static inline volta_vector vector_load_masked(const float *x, volta_mask m, float pad) {
  return _mm512_mask_loadu_ps(_mm512_set1_ps(pad), m, x);
}

static inline void vector_store_masked(float *x, volta_mask m, volta_vector a) {
  _mm512_mask_storeu_ps(x, m, a);
}

static inline volta_vector vector_keep(volta_vector a, volta_mask m) {
  return _mm512_maskz_mov_ps(m, a);
}
#else
typedef __m256i volta_mask;

static inline volta_mask mask_first(int64_t n) {
  const int first = n <= 0 ? 0 : n >= 8 ? 8 : (int)n;
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline volta_vector vector_load_masked(const float *x, volta_mask m, float pad) {
  return _mm256_blendv_ps(_mm256_set1_ps(pad), _mm256_maskload_ps(x, m), _mm256_castsi256_ps(m));
}

static inline void vector_store_masked(float *x, volta_mask m, volta_vector a) {
  _mm256_maskstore_ps(x, m, a);
}

static inline volta_vector vector_keep(volta_vector a, volta_mask m) {
  return _mm256_and_ps(a, _mm256_castsi256_ps(m));
}
#endif

/* --- blocks ---------------------------------------------------------------------------------- */
static inline volta_block block_set(float x) {
  volta_block a;
  VOLTA_EACH_PART a.part[p] = VECTOR(set1_ps)(x);
  return a;
}

/* x[0..31], or x[0..n-1] followed by `pad` where n < 32; nothing beyond x[n-1] is read. */
static inline volta_block block_load(const float *x, int64_t n, float pad) {
  volta_block a;
  if (n >= VOLTA_LANES) {
    VOLTA_EACH_PART a.part[p] = VECTOR(loadu_ps)(x + p * VOLTA_WIDTH);
  } else {
    VOLTA_EACH_PART a.part[p] =
        vector_load_masked(x + p * VOLTA_WIDTH, mask_first(n - p * VOLTA_WIDTH), pad);
  }
  return a;
}

/* Writes x[0..min(n, 32)-1] only. */
static inline void block_store(float *x, volta_block a, int64_t n) {
  if (n >= VOLTA_LANES) {
    VOLTA_EACH_PART VECTOR(storeu_ps)(x + p * VOLTA_WIDTH, a.part[p]);
  } else {
    VOLTA_EACH_PART vector_store_masked(x + p * VOLTA_WIDTH, mask_first(n - p * VOLTA_WIDTH),
                                        a.part[p]);
  }
}

/* Elements n.. become +0, which a sum does not notice (lanes.h). */
static inline volta_block block_keep(volta_block a, int64_t n) {
  if (n < VOLTA_LANES) {
    VOLTA_EACH_PART a.part[p] = vector_keep(a.part[p], mask_first(n - p * VOLTA_WIDTH));
  }
  return a;
}

static inline volta_block block_add(volta_block a, volta_block b) {
  VOLTA_EACH_PART a.part[p] = VECTOR(add_ps)(a.part[p], b.part[p]);
  return a;
}

static inline volta_block block_sub(volta_block a, volta_block b) {
  VOLTA_EACH_PART a.part[p] = VECTOR(sub_ps)(a.part[p], b.part[p]);
  return a;
}

static inline volta_block block_mul(volta_block a, volta_block b) {
  VOLTA_EACH_PART a.part[p] = VECTOR(mul_ps)(a.part[p], b.part[p]);
  return a;
}

/* x > m ? x : m, so a NaN in x is ignored: the instruction gives its second operand then. */
static inline volta_block block_max(volta_block x, volta_block m) {
  VOLTA_EACH_PART m.part[p] = VECTOR(max_ps)(x.part[p], m.part[p]);
  return m;
}

/* vmath.h's text, which the compiler vectorises: the array never leaves the registers. */
static inline volta_block block_exp(volta_block a) {
  float x[VOLTA_LANES];
  VOLTA_EACH_PART VECTOR(storeu_ps)(x + p * VOLTA_WIDTH, a.part[p]);
  for (int i = 0; i < VOLTA_LANES; i++) x[i] = volta_exp(x[i]);
  VOLTA_EACH_PART a.part[p] = VECTOR(loadu_ps)(x + p * VOLTA_WIDTH);
  return a;
}

/* --- rows taken together --------------------------------------------------------------------- */
#define VOLTA_ROW_GROUP 16
#define ROW_GROUP_ELEMENTS 4096

/* Each pass runs over a few rows, as many as stay in the first cache, before the next pass begins:
 * the latency of one row's fold, division or logarithm hides behind its neighbours' work. */
static inline int64_t row_group(int64_t width) {
  const int64_t rows = ROW_GROUP_ELEMENTS / (width + 1);
  return rows < 1 ? 1 : rows > VOLTA_ROW_GROUP ? VOLTA_ROW_GROUP : rows;
}

/* Elements of a block of which `left` are left. A kernel has its text twice, for rows of whole blocks
 * and for others: where `whole` is known to be 1 every check of n falls away. */
#define VOLTA_INLINE static inline __attribute__((always_inline))
static inline int64_t block_size(int64_t left, int whole) { return whole ? VOLTA_LANES : left; }

static inline void block_fetch(const float *x) {
  for (int i = 0; i < VOLTA_LANES; i += 16) _mm_prefetch((const char *)(x + i), _MM_HINT_T0);
}

/* --- across a block -------------------------------------------------------------------------- */
/* Registers hold consecutive lanes: `l += l + 16` adds registers, `l += l + 8` registers (AVX2) or
 * halves of one (AVX-512). */
#if defined(__AVX512F__)
static inline __m256 vector_lower(__m512 a) { return _mm512_castps512_ps256(a); }

static inline __m256 vector_upper(__m512 a) {
  return _mm512_castps512_ps256(_mm512_shuffle_f32x4(a, a, 0xee));
}

static inline __m256 block_sum_to_eight(volta_block a) {
  const __m512 sixteen = _mm512_add_ps(a.part[0], a.part[1]);
  return _mm256_add_ps(vector_lower(sixteen), vector_upper(sixteen));
}

static inline __m256 block_largest_of_eight(volta_block a) {
  const __m512 sixteen = _mm512_max_ps(a.part[0], a.part[1]);
  return _mm256_max_ps(vector_lower(sixteen), vector_upper(sixteen));
}
#else
static inline __m256 block_sum_to_eight(volta_block a) {
  return _mm256_add_ps(_mm256_add_ps(a.part[0], a.part[2]), _mm256_add_ps(a.part[1], a.part[3]));
}

static inline __m256 block_largest_of_eight(volta_block a) {
  return _mm256_max_ps(_mm256_max_ps(a.part[0], a.part[2]), _mm256_max_ps(a.part[1], a.part[3]));
}
#endif

/* N2's combination of the 32 lanes. */
static inline float block_sum(volta_block a) {
  const __m256 eight = block_sum_to_eight(a);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* The largest element of a block without NaN. */
static inline float block_largest(volta_block a) {
  const __m256 eight = block_largest_of_eight(a);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

#endif
