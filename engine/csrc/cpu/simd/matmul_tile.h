/* The register tile of matmul: R rows by V vectors of C, k ascending in steps of one fma (N1).
 *
 * C is loaded when an earlier K block left its sums there, else the sums start at +0. A is read by
 * broadcast with strides (a_rs, a_cs), so a matrix in place, its transpose and a packed sliver are
 * the same code. B is read by rows of V vectors, b_rs apart. In a masked tile only `columns` of the
 * last vector exist: no byte outside is read or written.
 *
 * The including file defines: vector, vector_mask, WIDTH, vector_zero, vector_load, vector_store,
 * vector_splat, vector_fma, vector_mask_of, vector_load_masked, vector_store_masked.
 */
#ifndef VOLTA_MATMUL_TILE_H
#define VOLTA_MATMUL_TILE_H

#include <stdint.h>

#define TILE_ROWS_LIMIT 14
#define TILE_VECTORS_LIMIT 2
/* Rows of B fetched ahead: 8 rows are about 100 cycles, the latency of an L2 or near L3 line. */
#define TILE_AHEAD 8
/* Rows per base address: five rows are reached from one base with strides 1, 2, 4 (scaled index)
 * and 3 (one more register). */
#define TILE_BASE 5

typedef struct {
  const float *a;
  const float *b;
  float *c;
  int64_t a_rs, a_cs, b_rs, c_rs;
  int64_t k;
  int64_t columns; /* of the last vector; only masked tiles look */
  int64_t resume;  /* 0: sums start at +0; 1: they continue from C */
} tile_call;

/* One k: a row of B against a column of A. */
#define TILE_STEP \
  _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) { \
    b[v] = v < last ? vector_load(from + v * WIDTH) : vector_load_masked(from + v * WIDTH, mask); \
    if (v % (64 / (WIDTH * 4)) == 0) __builtin_prefetch(from + TILE_AHEAD * b_rs + v * WIDTH); \
  } \
  _Pragma("GCC unroll 16") for (int i = 0; i < rows; i++) { \
    const vector a = vector_splat((i < TILE_BASE       ? a0 \
                                   : i < 2 * TILE_BASE ? a1 \
                                                       : a2) + \
                                  i % TILE_BASE * a_rs); \
    _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) c[i][v] = \
        vector_fma(a, b[v], c[i][v]); \
  } \
  a0 += a_cs, a1 += a_cs, a2 += a_cs, from += b_rs;

static inline __attribute__((always_inline)) void tile_body(const int rows, const int vectors,
                                                            const int masked, const tile_call *t) {
  vector c[TILE_ROWS_LIMIT][TILE_VECTORS_LIMIT], b[TILE_VECTORS_LIMIT];
  const int64_t a_rs = t->a_rs, a_cs = t->a_cs, b_rs = t->b_rs, c_rs = t->c_rs;
  const vector_mask mask = vector_mask_of(masked ? t->columns : WIDTH);
  const int last = masked ? vectors - 1 : vectors;
  float *const out = t->c;
  if (t->resume) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++)
        c[i][v] = v < last ? vector_load(out + i * c_rs + v * WIDTH)
                           : vector_load_masked(out + i * c_rs + v * WIDTH, mask);
    }
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) c[i][v] = vector_zero();
    }
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
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
      if (v < last)
        vector_store(out + i * c_rs + v * WIDTH, c[i][v]);
      else
        vector_store_masked(out + i * c_rs + v * WIDTH, c[i][v], mask);
  }
}

typedef void (*tile_function)(const tile_call *t);

#define TILE(R, V) \
  static void tile_##R##_##V(const tile_call *t) { tile_body(R, V, 0, t); } \
  static void tile_##R##_##V##_masked(const tile_call *t) { tile_body(R, V, 1, t); }

#endif
