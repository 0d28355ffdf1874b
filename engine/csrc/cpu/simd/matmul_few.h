/* A few rows times a matrix (decoding): C is [m, n] with few rows, B is read in place, once, so the
 * work is to stream it. Each element takes its fma steps in ascending k (N1); B is widened as it is
 * read. With scales (N10, weights alone) the sums of a group end in C = C + sums * scale.
 *
 * B by rows: FEW_DEPTH rows of B at a time, FEW_COLUMNS wide so that the sums stay in L1 between
 * passes. B by columns (a transposed view): WIDTH columns at a time, turned in registers.
 */
#ifndef VOLTA_MATMUL_FEW_H
#define VOLTA_MATMUL_FEW_H

#include "matmul_pack.h"

#define FEW_COLUMNS 1024
#define FEW_ROWS_TURNED 4

/* c[i][j] continues over `depth` rows of B; resume 0 starts at +0. */
static inline __attribute__((always_inline)) void
few_pass(const int rows, const int depth, const int32_t dtype, const float *a, int64_t a_rs,
         int64_t a_cs, const char *b, int64_t b_rs, float *c, int64_t c_rs, int64_t width,
         int resume) {
  const int64_t size = bytes_of(dtype);
  vector x[VOLTA_FEW_LIMIT][8];
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++) {
#pragma GCC unroll 8
    for (int k = 0; k < depth; k++) x[i][k] = vector_splat(a + i * a_rs + k * a_cs);
  }
  int64_t j = 0;
  for (; j + WIDTH <= width; j += WIDTH) {
    vector sum[VOLTA_FEW_LIMIT];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) sum[i] = resume ? vector_load(c + i * c_rs + j) : vector_zero();
#pragma GCC unroll 8
    for (int k = 0; k < depth; k++) {
      const vector y = vector_widen(b + (k * b_rs + j) * size, dtype);
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
        sum = vector_fma(x[i][k], vector_widen_first(b + (k * b_rs + j) * size, dtype, width - j),
                         sum);
      vector_store_masked(c + i * c_rs + j, sum, mask);
    }
  }
}

/* c[i][j] = before[i][j] + c[i][j] * scale[j], or +0 + .. for the first group. */
static void few_scale(int rows, float *c, int64_t c_rs, const float *before, const float *scale,
                      int64_t width) {
  for (int i = 0; i < rows; i++)
    for (int64_t j = 0; j < width; j++) {
      const float part = c[i * c_rs + j] * scale[j];
      c[i * c_rs + j] = (before == NULL ? 0.0f : before[i * FEW_COLUMNS + j]) + part;
    }
}

static inline __attribute__((always_inline)) void few_sums(const int rows, const int depth,
                                                           const int32_t dtype,
                                                           const volta_few_call *f, int64_t first,
                                                           int64_t last) {
  const float *a = f->a;
  const int64_t size = bytes_of(dtype);
  int64_t k = first;
  for (; k + depth <= last; k += depth)
    few_pass(rows, depth, dtype, a + k * f->a_cs, f->a_rs, f->a_cs,
             (const char *)f->b + k * f->b_s * size, f->b_s, f->c, f->c_rs, f->width, k > first);
  for (; k < last; k++)
    few_pass(rows, 1, dtype, a + k * f->a_cs, f->a_rs, f->a_cs,
             (const char *)f->b + k * f->b_s * size, f->b_s, f->c, f->c_rs, f->width, k > first);
}

static inline __attribute__((always_inline)) void
few_body(const int rows, const int depth, const int32_t dtype, const volta_few_call *f) {
  if (f->scale == NULL) {
    few_sums(rows, depth, dtype, f, 0, f->k);
    return;
  }
  float before[VOLTA_FEW_LIMIT * FEW_COLUMNS];
  for (int64_t g = 0; g * f->group < f->k; g++) {
    for (int i = 0; i < rows && g > 0; i++)
      __builtin_memcpy(before + i * FEW_COLUMNS, f->c + i * f->c_rs,
                       (size_t)f->width * sizeof(float));
    few_sums(rows, depth, dtype, f, g * f->group, (g + 1) * f->group);
    few_scale(rows, f->c, f->c_rs, g > 0 ? before : NULL, f->scale + g * f->scale_rs, f->width);
  }
}

/* b[k][j] at b[j * b_s + k]. The sums of WIDTH columns stay in registers over all of k. */
static inline __attribute__((always_inline)) void
few_turned_body(const int rows, const int32_t dtype, const volta_few_call *f) {
  const float *a = f->a;
  const int64_t a_rs = f->a_rs, a_cs = f->a_cs, b_cs = f->b_s, size = bytes_of(dtype);
  const int64_t group = f->scale == NULL ? f->k : f->group;
  for (int64_t j = 0; j < f->width; j += WIDTH) {
    const int64_t lines = f->width - j < WIDTH ? f->width - j : WIDTH;
    const vector_mask mask = vector_mask_of(lines);
    const char *line = (const char *)f->b + j * b_cs * size;
    vector sum[FEW_ROWS_TURNED], total[FEW_ROWS_TURNED], block[WIDTH];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) sum[i] = total[i] = vector_zero();
    for (int64_t k = 0, g = 0; k < f->k; g++) {
      const int64_t end = k + group;
      for (; lines == WIDTH && k + WIDTH <= end; k += WIDTH) {
#pragma GCC unroll 16
        for (int x = 0; x < WIDTH; x++)
          block[x] = vector_widen(line + (x * b_cs + k) * size, dtype);
        vector_transpose(block);
#pragma GCC unroll 16
        for (int x = 0; x < WIDTH; x++) {
#pragma GCC unroll 4
          for (int i = 0; i < rows; i++)
            sum[i] = vector_fma(vector_splat(a + i * a_rs + (k + x) * a_cs), block[x], sum[i]);
        }
      }
      for (; k < end; k++) {
        float row[WIDTH] = {0};
        for (int64_t x = 0; x < lines; x++) row[x] = widen(line + (x * b_cs + k) * size, dtype);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
          sum[i] = vector_fma(vector_splat(a + i * a_rs + k * a_cs), vector_load(row), sum[i]);
      }
      if (f->scale == NULL) break;
      const vector scale = vector_load_masked(f->scale + g * f->scale_rs + j, mask);
#pragma GCC unroll 4
      for (int i = 0; i < rows; i++) {
        total[i] = vector_add(total[i], vector_mul(sum[i], scale));
        sum[i] = vector_zero();
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
      vector_store_masked(f->c + i * f->c_rs + j, f->scale == NULL ? sum[i] : total[i], mask);
  }
}

/* Rows of B taken together by few rows: rows * depth broadcasts fit the registers. */
#if WIDTH == 16
#define FEW_ROWS 8
#define FEW_DEPTH_1 8
#define FEW_DEPTH_2 8
#define FEW_DEPTH_3 6
#define FEW_DEPTH_4 4
#define FEW_DEPTH_5 4
#define FEW_DEPTH_6 3
#define FEW_DEPTH_7 3
#define FEW_DEPTH_8 2
#define FEW_EACH(X, D) X(1, D) X(2, D) X(3, D) X(4, D) X(5, D) X(6, D) X(7, D) X(8, D)
#else
#define FEW_ROWS 4
#define FEW_DEPTH_1 8
#define FEW_DEPTH_2 4
#define FEW_DEPTH_3 3
#define FEW_DEPTH_4 2
#define FEW_EACH(X, D) X(1, D) X(2, D) X(3, D) X(4, D)
#endif

#define FEW(R, D) \
  static void few_##R##_##D(const volta_few_call *f) { few_body(R, FEW_DEPTH_##R, VOLTA_##D, f); }
#define FEW_TURNED(R, D) \
  static void few_turned_##R##_##D(const volta_few_call *f) { few_turned_body(R, VOLTA_##D, f); }
#define FEW_TURNED_EACH(X, D) X(1, D) X(2, D) X(3, D) X(4, D)
#define FEW_NAME(R, D) few_##R##_##D,
#define FEW_TURNED_NAME(R, D) few_turned_##R##_##D,
#define FEW_TABLES(D) \
  FEW_EACH(FEW, D) \
  FEW_TURNED_EACH(FEW_TURNED, D) \
  static const volta_few few_##D[FEW_ROWS] = {FEW_EACH(FEW_NAME, D)}; \
  static const volta_few few_turned_##D[FEW_ROWS_TURNED] = {FEW_TURNED_EACH(FEW_TURNED_NAME, D)};

FEW_TABLES(F32)
FEW_TABLES(BF16)
FEW_TABLES(I8)

#endif
