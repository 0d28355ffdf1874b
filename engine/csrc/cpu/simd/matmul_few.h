/* A few rows times a matrix (decoding): C is [m, n] with m <= FEW_ROWS, B is read in place, once,
 * so the work is to stream it. Each element takes its fma steps in ascending k (N1).
 *
 * B by rows: FEW_DEPTH rows of B at a time, FEW_COLUMNS wide so that the sums stay in L1 between
 * passes. B by columns (a transposed view): WIDTH columns at a time, turned in registers.
 */
#ifndef VOLTA_MATMUL_FEW_H
#define VOLTA_MATMUL_FEW_H

#include <stdint.h>

#define FEW_COLUMNS 1024
#define FEW_ROWS_LIMIT 8
#define FEW_ROWS_TURNED 4

/* c[i][j] continues over `depth` rows of B; resume 0 starts at +0. */
static inline __attribute__((always_inline)) void
few_pass(const int rows, const int depth, const float *a, int64_t a_rs, int64_t a_cs,
         const float *b, int64_t b_rs, float *c, int64_t c_rs, int64_t width, int resume) {
  vector x[FEW_ROWS_LIMIT][8];
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++) {
#pragma GCC unroll 8
    for (int k = 0; k < depth; k++) x[i][k] = vector_splat(a + i * a_rs + k * a_cs);
  }
  int64_t j = 0;
  for (; j + WIDTH <= width; j += WIDTH) {
    vector sum[FEW_ROWS_LIMIT];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) sum[i] = resume ? vector_load(c + i * c_rs + j) : vector_zero();
#pragma GCC unroll 8
    for (int k = 0; k < depth; k++) {
      const vector y = vector_load(b + k * b_rs + j);
#pragma GCC unroll 8
      for (int i = 0; i < rows; i++) sum[i] = vector_fma(x[i][k], y, sum[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) vector_store(c + i * c_rs + j, sum[i]);
  }
  if (j < width) {
    const vector_mask mask = vector_mask_of(width - j);
    for (int i = 0; i < rows; i++) {
      vector sum = resume ? vector_load_masked(c + i * c_rs + j, mask) : vector_zero();
      for (int k = 0; k < depth; k++)
        sum = vector_fma(x[i][k], vector_load_masked(b + k * b_rs + j, mask), sum);
      vector_store_masked(c + i * c_rs + j, sum, mask);
    }
  }
}

static inline __attribute__((always_inline)) void
few_body(const int rows, const int depth, const float *a, int64_t a_rs, int64_t a_cs,
         const float *b, int64_t b_rs, float *c, int64_t c_rs, int64_t width, int64_t k) {
  int64_t done = 0;
  for (; done + depth <= k; done += depth)
    few_pass(rows, depth, a + done * a_cs, a_rs, a_cs, b + done * b_rs, b_rs, c, c_rs, width,
             done > 0);
  for (; done < k; done++)
    few_pass(rows, 1, a + done * a_cs, a_rs, a_cs, b + done * b_rs, b_rs, c, c_rs, width, done > 0);
}

#define FEW(R) \
  static void few_##R(const float *a, int64_t a_rs, int64_t a_cs, const float *b, int64_t b_rs, \
                      float *c, int64_t c_rs, int64_t width, int64_t k) { \
    few_body(R, FEW_DEPTH_##R, a, a_rs, a_cs, b, b_rs, c, c_rs, width, k); \
  }
FEW(1)
FEW(2)
FEW(3)
FEW(4)
#if FEW_ROWS > 4
FEW(5)
FEW(6)
FEW(7)
FEW(8)
#endif
#undef FEW

/* b[k][j] at b[j * b_cs + k]. The sums of WIDTH columns stay in registers over all of k. */
static inline __attribute__((always_inline)) void
few_turned_body(const int rows, const float *a, int64_t a_rs, int64_t a_cs, const float *b,
                int64_t b_cs, float *c, int64_t c_rs, int64_t width, int64_t depth) {
  for (int64_t j = 0; j < width; j += WIDTH) {
    const int64_t lines = width - j < WIDTH ? width - j : WIDTH;
    const float *line = b + j * b_cs;
    vector sum[FEW_ROWS_TURNED], block[WIDTH];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) sum[i] = vector_zero();
    int64_t k = 0;
    for (; lines == WIDTH && k + WIDTH <= depth; k += WIDTH) {
#pragma GCC unroll 16
      for (int x = 0; x < WIDTH; x++) block[x] = vector_load(line + x * b_cs + k);
      vector_transpose(block);
#pragma GCC unroll 16
      for (int x = 0; x < WIDTH; x++) {
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
          sum[i] = vector_fma(vector_splat(a + i * a_rs + (k + x) * a_cs), block[x], sum[i]);
      }
    }
    for (; k < depth; k++) {
      float row[WIDTH] = {0};
      for (int64_t x = 0; x < lines; x++) row[x] = line[x * b_cs + k];
#pragma GCC unroll 4
      for (int i = 0; i < rows; i++)
        sum[i] = vector_fma(vector_splat(a + i * a_rs + k * a_cs), vector_load(row), sum[i]);
    }
    const vector_mask mask = vector_mask_of(lines);
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) vector_store_masked(c + i * c_rs + j, sum[i], mask);
  }
}

#define FEW_TURNED(R) \
  static void few_turned_##R(const float *a, int64_t a_rs, int64_t a_cs, const float *b, \
                             int64_t b_cs, float *c, int64_t c_rs, int64_t width, int64_t k) { \
    few_turned_body(R, a, a_rs, a_cs, b, b_cs, c, c_rs, width, k); \
  }
FEW_TURNED(1)
FEW_TURNED(2)
FEW_TURNED(3)
FEW_TURNED(4)
#undef FEW_TURNED

/* `b_s`: the stride of B that is not 1. */
typedef void (*few_function)(const float *a, int64_t a_rs, int64_t a_cs, const float *b,
                             int64_t b_s, float *c, int64_t c_rs, int64_t width, int64_t k);
static const few_function few_table[FEW_ROWS] = {
    few_1, few_2, few_3, few_4,
#if FEW_ROWS > 4
    few_5, few_6, few_7, few_8,
#endif
};
static const few_function few_turned_table[FEW_ROWS_TURNED] = {few_turned_1, few_turned_2,
                                                               few_turned_3, few_turned_4};

#endif
