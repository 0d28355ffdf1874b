/* The register tiles of N1: R rows by V vectors of C, k ascending in steps of one fma.
 *
 * C is loaded when an earlier K block left its sums there, else the sums start at +0. A is read by
 * broadcast with strides (a_rs, a_cs), so a matrix in place, its transpose and a packed sliver are
 * the same code. B is read by rows of V vectors, b_rs apart. In a masked tile only `columns` of the
 * last vector exist: no byte outside is read or written.
 *
 * A scaled tile is N10 with weights alone: the sums of each group start at +0, and
 * C = C + sums * scale, both rounded.
 */
#ifndef VOLTA_SIMD_MATMUL_F32_H
#define VOLTA_SIMD_MATMUL_F32_H

#include "matmul_pack.h"

#define TILE_ROWS_LIMIT 14
#define TILE_VECTORS_LIMIT 4
/* Rows per base address: five rows are reached from one base with strides 1, 2, 4 (scaled index)
 * and 3 (one more register). */
#define TILE_BASE 5

/* Columns of A fetched ahead, for each row of B: where they are contiguous each is one or two lines of
 * its own, which no hardware fetches ahead. */
#define AHEAD_OF_A 4

/* One k: a row of B against a column of A. */
#define TILE_STEP \
  _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) { \
    b[v] = v < last ? vector_load(from + v * WIDTH) : vector_load_masked(from + v * WIDTH, mask); \
    if (v % (64 / (WIDTH * 4)) == 0) __builtin_prefetch(from + ahead + v * WIDTH); \
  } \
  __builtin_prefetch(a0 + a_ahead); \
  if (rows > 2 * TILE_BASE) __builtin_prefetch(a2 + a_ahead + (rows - 1 - 2 * TILE_BASE)); \
  _Pragma("GCC unroll 16") for (int i = 0; i < rows; i++) { \
    const vector a = vector_splat((i < TILE_BASE       ? a0 \
                                   : i < 2 * TILE_BASE ? a1 \
                                                       : a2) + \
                                  i % TILE_BASE * a_rs); \
    _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) c[i][v] = \
        vector_fma(a, b[v], c[i][v]); \
  } \
  a0 += a_cs, a1 += a_cs, a2 += a_cs, from += b_rs;

/* The body for each vector of the tile: row i, vector v. */
#define TILE_EACH \
  _Pragma("GCC unroll 16") for (int i = 0; i < rows; i++) \
      _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)

static inline __attribute__((always_inline)) vector tile_read(const float *x, int whole,
                                                              vector_mask mask) {
  return whole ? vector_load(x) : vector_load_masked(x, mask);
}

static inline __attribute__((always_inline)) void tile_write(float *x, vector value, int whole,
                                                             vector_mask mask) {
  if (whole)
    vector_store(x, value);
  else
    vector_store_masked(x, value, mask);
}

static inline __attribute__((always_inline)) void
tile_body(const int rows, const int vectors, const int masked, const volta_tile_call *t) {
  vector c[TILE_ROWS_LIMIT][TILE_VECTORS_LIMIT], b[TILE_VECTORS_LIMIT];
  const int64_t a_rs = t->a_rs, a_cs = t->a_cs, b_rs = t->b_rs, c_rs = t->c_rs;
  const int64_t ahead = t->ahead * b_rs, a_ahead = AHEAD_OF_A * t->ahead * a_cs;
  const vector_mask mask = vector_mask_of(masked ? t->columns : WIDTH);
  const int last = masked ? vectors - 1 : vectors;
  float *const out = t->c;
  if (t->resume) {
    TILE_EACH c[i][v] = tile_read(out + i * c_rs + v * WIDTH, v < last, mask);
  } else {
    TILE_EACH c[i][v] = vector_zero();
  }
  const float *a0 = t->a, *a1 = a0 + TILE_BASE * a_rs, *a2 = a1 + TILE_BASE * a_rs, *from = t->b;
  /* two loops: the first also fetches the piece of C below, needed one tile from now */
  const float *below = out + rows * c_rs;
  const int64_t lines = t->k < rows ? t->k : rows;
  for (int64_t k = 0; k < lines; k++, below += c_rs) {
    __builtin_prefetch(below, 1, 2);
    __builtin_prefetch(below + (vectors - 1) * WIDTH, 1, 2);
    TILE_STEP
  }
  for (int64_t k = lines; k < t->k; k++) {
    TILE_STEP
  }
  TILE_EACH tile_write(out + i * c_rs + v * WIDTH, c[i][v], v < last, mask);
}

static inline __attribute__((always_inline)) void
tile_scaled_body(const int rows, const int vectors, const int masked, const volta_tile_call *t) {
  vector c[TILE_ROWS_LIMIT][TILE_VECTORS_LIMIT], b[TILE_VECTORS_LIMIT];
  const int64_t a_rs = t->a_rs, a_cs = t->a_cs, b_rs = t->b_rs, c_rs = t->c_rs;
  const int64_t ahead = t->ahead * b_rs, a_ahead = AHEAD_OF_A * t->ahead * a_cs;
  const vector_mask mask = vector_mask_of(masked ? t->columns : WIDTH);
  const int last = masked ? vectors - 1 : vectors;
  float *const out = t->c;
  const float *a0 = t->a, *a1 = a0 + TILE_BASE * a_rs, *a2 = a1 + TILE_BASE * a_rs, *from = t->b;
  const float *scale = t->scale;
  int resume = t->resume != 0;
  for (int64_t g = 0; g < t->k; g += t->group, scale += t->scale_rs, resume = 1) {
    TILE_EACH c[i][v] = vector_zero();
    for (int64_t k = 0; k < t->group; k++) {
      TILE_STEP
    }
    TILE_EACH {
      const vector before =
          resume ? tile_read(out + i * c_rs + v * WIDTH, v < last, mask) : vector_zero();
      const vector part = vector_mul(c[i][v], tile_read(scale + v * WIDTH, v < last, mask));
      tile_write(out + i * c_rs + v * WIDTH, vector_add(before, part), v < last, mask);
    }
  }
}

/* Tiles of every number of rows, as one table per number of vectors. */
#define TILE(R, V) \
  static void tile_##R##_##V(const volta_tile_call *t) { tile_body(R, V, 0, t); } \
  static void tile_##R##_##V##_masked(const volta_tile_call *t) { tile_body(R, V, 1, t); }
#define TILE_SCALED(R, V) \
  static void tile_scaled_##R##_##V(const volta_tile_call *t) { tile_scaled_body(R, V, 0, t); } \
  static void tile_scaled_##R##_##V##_masked(const volta_tile_call *t) { \
    tile_scaled_body(R, V, 1, t); \
  }

#define TO_4(X, V) X(1, V) X(2, V) X(3, V) X(4, V)
#define TO_6(X, V) TO_4(X, V) X(5, V) X(6, V)
#define TO_7(X, V) TO_6(X, V) X(7, V)
#define TO_9(X, V) TO_7(X, V) X(8, V) X(9, V)
#define TO_12(X, V) TO_9(X, V) X(10, V) X(11, V) X(12, V)
#define TO_14(X, V) TO_12(X, V) X(13, V) X(14, V)
#define TILE_ENTRY(R, V) [R - 1] = tile_##R##_##V,
#define TILE_ENTRY_MASKED(R, V) [R - 1] = tile_##R##_##V##_masked,
#define TILE_ENTRY_SCALED(R, V) [R - 1] = tile_scaled_##R##_##V,
#define TILE_ENTRY_SCALED_MASKED(R, V) [R - 1] = tile_scaled_##R##_##V##_masked,

#if WIDTH == 16
TO_14(TILE, 1)
TO_14(TILE, 2)
TO_9(TILE, 3)
TO_7(TILE, 4)
TO_14(TILE_SCALED, 1)
TO_14(TILE_SCALED, 2)
#define TILE_TABLE(X) \
  { \
    {TO_14(X, 1)}, {TO_14(X, 2)}, {TO_9(X, 3)}, { TO_7(X, 4) } \
  }
#define TILE_TABLE_SCALED(X) \
  { \
    {TO_14(X, 1)}, { TO_14(X, 2) } \
  }
#define TILE_WIDEST 4
#define TILE_ROWS_OF {14, 14, 9, 7}
#else
TO_12(TILE, 1)
TO_6(TILE, 2)
TO_4(TILE, 3)
TO_12(TILE_SCALED, 1)
TO_6(TILE_SCALED, 2)
#define TILE_TABLE(X) \
  { \
    {TO_12(X, 1)}, {TO_6(X, 2)}, { TO_4(X, 3) } \
  }
#define TILE_TABLE_SCALED(X) \
  { \
    {TO_12(X, 1)}, { TO_6(X, 2) } \
  }
#define TILE_WIDEST 3
#define TILE_ROWS_OF {12, 6, 4}
#endif

static const volta_tile f32_tiles[2][TILE_VECTORS_LIMIT][TILE_ROWS_LIMIT] = {
    TILE_TABLE(TILE_ENTRY), TILE_TABLE(TILE_ENTRY_MASKED)};
static const volta_tile f32_scaled_tiles[2][TILE_VECTORS_LIMIT][TILE_ROWS_LIMIT] = {
    TILE_TABLE_SCALED(TILE_ENTRY_SCALED), TILE_TABLE_SCALED(TILE_ENTRY_SCALED_MASKED)};

#define TILE_TILES \
  .tiles = &f32_tiles[0][0][0], .scaled = &f32_scaled_tiles[0][0][0], \
  .vectors_limit = TILE_WIDEST, .rows_limit = TILE_ROWS_OF, \
  .masked_stride = TILE_VECTORS_LIMIT * TILE_ROWS_LIMIT, .vectors_stride = TILE_ROWS_LIMIT, \
  .rows_stride = 1

#endif
