/* The contractions of attention on register tiles of up to ATTENTION_ROWS rows by a few vectors
 * of columns. Each starts from or continues the accumulators in memory and goes through its
 * contraction in ascending order, so a tile is N1 whatever its shape. Three shapes of the same
 * loop:
 *
 *   score_tile   out[r][c]  = (sum over d of a[r][d] * panel[d][c]) * scale    queries by keys
 *   keys_tile    out[r][c] += sum over keys j < seen[r] of a[r][j] * b[j][c]   queries by D
 *   queries_tile out[r][c] += sum over t of a[t][r] * b[t][c]                  keys by D
 *
 * The causal triangle is ragged: keys_tile drops its first rows one by one at the end of the
 * contraction, queries_tile gains its last rows one by one at the start. An invisible pair takes
 * no part at all: even fma(0, x, y) would turn y = -0 into +0 and x = inf into NaN. */
#ifndef VOLTA_SIMD_ATTENTION_TILE_H
#define VOLTA_SIMD_ATTENTION_TILE_H

#include "vector.h"

/* Rows of a tile; rows up to which a tile may be four vectors wide instead of two. */
#if VOLTA_WIDTH == 16
#define ATTENTION_ROWS 8
#define ATTENTION_WIDE_ROWS 4
#else
#define ATTENTION_ROWS 6
#define ATTENTION_WIDE_ROWS 2
#endif
#define ATTENTION_PANEL (4 * VOLTA_WIDTH) /* keys of a packed panel */

#define VOLTA_UNROLL _Pragma("GCC unroll 8")

/* --- rows at a constant distance -------------------------------------------------------------- */
/* Two bases and two distances reach eight rows by x86 addressing. The compiler would rather keep
 * one pointer per row and spill them; the empty asm hides from it how the bases move. */
typedef struct {
  const float *low, *high; /* element k of rows 0 and 4 */
  int64_t row, row3;
} tile_rows;

VOLTA_INLINE tile_rows rows_at(const float *a, int64_t row) {
  tile_rows rows = {a, a + 4 * row, row, 3 * row};
  __asm__("" : "+r"(rows.row), "+r"(rows.row3));
  return rows;
}

VOLTA_INLINE float rows_get(const tile_rows *rows, int r) {
  const float *base = r < 4 ? rows->low : rows->high;
  return (r & 3) == 3 ? base[rows->row3] : base[(r & 3) * rows->row];
}

VOLTA_INLINE void rows_next(tile_rows *rows, int m) {
  rows->low++;
  rows->high++;
  if (m > 4)
    __asm__("" : "+r"(rows->low), "+r"(rows->high));
  else
    __asm__("" : "+r"(rows->low));
}

/* --- loads and stores of a tile --------------------------------------------------------------- */
/* `part` masks the last column vector of a one-vector tile; wider tiles are full. */
VOLTA_INLINE volta_vector tile_load(const float *x, int nv, volta_mask part) {
  return nv == 1 ? vector_load_masked(x, part, 0.0f) : VECTOR(loadu_ps)(x);
}

VOLTA_INLINE void tile_store(float *x, int nv, volta_mask part, volta_vector a) {
  if (nv == 1)
    vector_store_masked(x, part, a);
  else
    VECTOR(storeu_ps)(x, a);
}

#define TILE_ROW_FMA(r, value) \
  if ((r) < m) { \
    const volta_vector factor = VECTOR(set1_ps)(value); \
    VOLTA_UNROLL for (int v = 0; v < nv; v++) sum[r][v] = \
        VECTOR(fmadd_ps)(factor, column[v], sum[r][v]); \
  }
#define TILE_FALLTHROUGH __attribute__((fallthrough));

/* --- score_tile ------------------------------------------------------------------------------- */
VOLTA_INLINE void score_tile(int m, int nv, int64_t D, const float *a, int64_t a_row,
                             const float *panel, float scale, float *out, int64_t out_row) {
  volta_vector sum[ATTENTION_ROWS][4];
  VOLTA_UNROLL for (int r = 0; r < m; r++) VOLTA_UNROLL for (int v = 0; v < nv; v++) sum[r][v] =
      VECTOR(setzero_ps)();
  tile_rows rows = rows_at(a, a_row);
  for (int64_t d = 0; d < D; d++) {
    volta_vector column[4];
    VOLTA_UNROLL for (int v = 0; v < nv; v++) column[v] =
        VECTOR(loadu_ps)(panel + d * ATTENTION_PANEL + v * VOLTA_WIDTH);
    VOLTA_UNROLL for (int r = 0; r < m; r++) TILE_ROW_FMA(r, rows_get(&rows, r))
        rows_next(&rows, m);
  }
  VOLTA_UNROLL for (int r = 0; r < m; r++) VOLTA_UNROLL for (int v = 0; v < nv; v++)
      VECTOR(storeu_ps)(out + r * out_row + v * VOLTA_WIDTH,
                        VECTOR(mul_ps)(sum[r][v], VECTOR(set1_ps)(scale)));
}

/* --- keys_tile -------------------------------------------------------------------------------- */
/* Keys first .. last of the contraction; key 0 starts it. seen[r] is not decreasing in r. a
 * points at key `first` of row 0, b at row `first`; out[r] is the address of row r's columns. */
VOLTA_INLINE void keys_tile(int m, int nv, volta_mask part, int64_t first, int64_t last,
                            const int64_t *seen, const float *a, int64_t a_row, const float *b,
                            int64_t b_step, float *const *out, int64_t out_column) {
  volta_vector sum[ATTENTION_ROWS][4];
  VOLTA_UNROLL for (int r = 0; r < m; r++) VOLTA_UNROLL for (int v = 0; v < nv; v++) sum[r][v] =
      first == 0 ? VECTOR(setzero_ps)()
                 : tile_load(out[r] + out_column + v * VOLTA_WIDTH, nv, part);
  tile_rows rows = rows_at(a, a_row);
  volta_vector column[4];
  const int64_t common = seen[0] < last ? seen[0] : last;
  int64_t j = first;
  for (; j < common; j++) {
    VOLTA_UNROLL for (int v = 0; v < nv; v++) column[v] = tile_load(b + v * VOLTA_WIDTH, nv, part);
    VOLTA_UNROLL for (int r = 0; r < m; r++) TILE_ROW_FMA(r, rows_get(&rows, r))
        rows_next(&rows, m);
    b += b_step;
  }
  const int64_t end = seen[m - 1] < last ? seen[m - 1] : last;
  for (int row = 0; j < end; j++) { /* rows row .. m-1 see key j */
    while (seen[row] <= j) row++;
    VOLTA_UNROLL for (int v = 0; v < nv; v++) column[v] = tile_load(b + v * VOLTA_WIDTH, nv, part);
    switch (row) {
    case 0:
    TILE_ROW_FMA(0, rows_get(&rows, 0)) TILE_FALLTHROUGH case 1:
    TILE_ROW_FMA(1, rows_get(&rows, 1)) TILE_FALLTHROUGH case 2:
    TILE_ROW_FMA(2, rows_get(&rows, 2)) TILE_FALLTHROUGH case 3:
    TILE_ROW_FMA(3, rows_get(&rows, 3)) TILE_FALLTHROUGH case 4:
    TILE_ROW_FMA(4, rows_get(&rows, 4)) TILE_FALLTHROUGH case 5:
      TILE_ROW_FMA(5, rows_get(&rows, 5))
      TILE_FALLTHROUGH
#if ATTENTION_ROWS == 8
    case 6:
    TILE_ROW_FMA(6, rows_get(&rows, 6)) TILE_FALLTHROUGH case 7:
      TILE_ROW_FMA(7, rows_get(&rows, 7))
      TILE_FALLTHROUGH
#endif
      default : break;
    }
    rows_next(&rows, m);
    b += b_step;
  }
  VOLTA_UNROLL for (int r = 0; r < m; r++) VOLTA_UNROLL for (int v = 0; v < nv; v++)
      tile_store(out[r] + out_column + v * VOLTA_WIDTH, nv, part, sum[r][v]);
}

/* --- queries_tile ----------------------------------------------------------------------------- */
/* `count` queries of the contraction; the first of all when `start`. Row r takes part from query
 * max(0, r - lead) on, so lead + 1 rows take part in the first one (lead >= m - 1: all). a and b
 * point at the first query; rows of out are out_row apart. */
VOLTA_INLINE void queries_tile(int m, int nv, volta_mask part, int64_t start, int64_t count,
                               int64_t lead, const float *a, int64_t a_step, const float *b,
                               int64_t b_step, float *out, int64_t out_row) {
  volta_vector sum[ATTENTION_ROWS][4];
  VOLTA_UNROLL for (int r = 0; r < m; r++) VOLTA_UNROLL for (int v = 0; v < nv; v++) sum[r][v] =
      start ? VECTOR(setzero_ps)() : tile_load(out + r * out_row + v * VOLTA_WIDTH, nv, part);
  volta_vector column[4];
  int64_t t = 0;
  for (; t < count && lead < m - 1; t++, lead++) {
    VOLTA_UNROLL for (int v = 0; v < nv; v++) column[v] = tile_load(b + v * VOLTA_WIDTH, nv, part);
    switch (lead) {
#if ATTENTION_ROWS == 8
    case 6:
    TILE_ROW_FMA(6, a[6]) TILE_FALLTHROUGH case 5:
      TILE_ROW_FMA(5, a[5])
      TILE_FALLTHROUGH
#endif
    case 4:
    TILE_ROW_FMA(4, a[4]) TILE_FALLTHROUGH case 3:
    TILE_ROW_FMA(3, a[3]) TILE_FALLTHROUGH case 2:
    TILE_ROW_FMA(2, a[2]) TILE_FALLTHROUGH case 1:
      TILE_ROW_FMA(1, a[1]) TILE_FALLTHROUGH default : TILE_ROW_FMA(0, a[0])
    }
    a += a_step;
    b += b_step;
  }
  for (; t < count; t++) {
    VOLTA_UNROLL for (int v = 0; v < nv; v++) column[v] = tile_load(b + v * VOLTA_WIDTH, nv, part);
    VOLTA_UNROLL for (int r = 0; r < m; r++) TILE_ROW_FMA(r, a[r]) a += a_step;
    b += b_step;
  }
  VOLTA_UNROLL for (int r = 0; r < m; r++) VOLTA_UNROLL for (int v = 0; v < nv; v++)
      tile_store(out + r * out_row + v * VOLTA_WIDTH, nv, part, sum[r][v]);
}

/* --- one compiled tile per number of rows and vectors ----------------------------------------- */
typedef void (*score_tile_function)(int64_t, const float *, int64_t, const float *, float, float *,
                                    int64_t);
typedef void (*keys_tile_function)(volta_mask, int64_t, int64_t, const int64_t *, const float *,
                                   int64_t, const float *, int64_t, float *const *, int64_t);
typedef void (*queries_tile_function)(volta_mask, int64_t, int64_t, int64_t, const float *, int64_t,
                                      const float *, int64_t, float *, int64_t);

#define TILE_FUNCTIONS(m, nv) \
  static void score_tile_##m##x##nv(int64_t D, const float *a, int64_t a_row, const float *panel, \
                                    float scale, float *out, int64_t out_row) { \
    score_tile(m, nv, D, a, a_row, panel, scale, out, out_row); \
  } \
  static void keys_tile_##m##x##nv( \
      volta_mask part, int64_t first, int64_t last, const int64_t *seen, const float *a, \
      int64_t a_row, const float *b, int64_t b_step, float *const *out, int64_t out_column) { \
    keys_tile(m, nv, part, first, last, seen, a, a_row, b, b_step, out, out_column); \
  } \
  static void queries_tile_##m##x##nv(volta_mask part, int64_t start, int64_t count, int64_t lead, \
                                      const float *a, int64_t a_step, const float *b, \
                                      int64_t b_step, float *out, int64_t out_row) { \
    queries_tile(m, nv, part, start, count, lead, a, a_step, b, b_step, out, out_row); \
  }

#define TILE_NARROW(m) TILE_FUNCTIONS(m, 1) TILE_FUNCTIONS(m, 2)
#define TILE_WIDE(m) TILE_NARROW(m) TILE_FUNCTIONS(m, 4)
#define NARROW(name, m) [m] = {[1] = name##_##m##x1, [2] = name##_##m##x2}
#define WIDE(name, m) [m] = {[1] = name##_##m##x1, [2] = name##_##m##x2, [4] = name##_##m##x4}

TILE_WIDE(1)
TILE_WIDE(2)
#if ATTENTION_ROWS == 8
TILE_WIDE(3)
TILE_WIDE(4)
TILE_NARROW(5)
TILE_NARROW(6)
TILE_NARROW(7)
TILE_NARROW(8)
#define TILE_TABLE(name) \
  {WIDE(name, 1),   WIDE(name, 2),   WIDE(name, 3),   WIDE(name, 4), \
   NARROW(name, 5), NARROW(name, 6), NARROW(name, 7), NARROW(name, 8)}
#else
TILE_NARROW(3)
TILE_NARROW(4)
TILE_NARROW(5)
TILE_NARROW(6)
#define TILE_TABLE(name) \
  {WIDE(name, 1), WIDE(name, 2), NARROW(name, 3), NARROW(name, 4), NARROW(name, 5), NARROW(name, 6)}
#endif

/* [rows][vectors] */
static const score_tile_function score_tiles[ATTENTION_ROWS + 1][5] = TILE_TABLE(score_tile);
static const keys_tile_function keys_tiles[ATTENTION_ROWS + 1][5] = TILE_TABLE(keys_tile);
static const queries_tile_function queries_tiles[ATTENTION_ROWS + 1][5] = TILE_TABLE(queries_tile);

/* Vectors of the next tile of m rows where `columns` columns remain. */
static inline int tile_vectors(int64_t m, int64_t columns) {
  if (m <= ATTENTION_WIDE_ROWS && columns >= 4 * VOLTA_WIDTH) return 4;
  return columns >= 2 * VOLTA_WIDTH ? 2 : 1;
}

/* --- panels ----------------------------------------------------------------------------------- */
/* Four elements of 4 * lanes rows -> four vectors, one element of every row each. */
#if VOLTA_WIDTH == 16
VOLTA_INLINE volta_vector panel_gather(const float *const *row, int64_t d) {
  __m512 x = _mm512_castps128_ps512(_mm_loadu_ps(row[0] + d));
  x = _mm512_insertf32x4(x, _mm_loadu_ps(row[4] + d), 1);
  x = _mm512_insertf32x4(x, _mm_loadu_ps(row[8] + d), 2);
  return _mm512_insertf32x4(x, _mm_loadu_ps(row[12] + d), 3);
}
#else
VOLTA_INLINE volta_vector panel_gather(const float *const *row, int64_t d) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(row[0] + d)),
                              _mm_loadu_ps(row[4] + d), 1);
}
#endif

/* panel[d][c] = x[c][d] for `count` >= 1 rows of D elements. The columns up to the next whole
 * vector repeat the last row: tiles compute them and nobody reads the result. */
static void panel_pack(float *panel, const float *x, int64_t x_row, int64_t count, int64_t D) {
  for (int64_t c = 0; c < count; c += VOLTA_WIDTH) {
    const float *row[VOLTA_WIDTH];
    for (int64_t r = 0; r < VOLTA_WIDTH; r++)
      row[r] = x + (c + r < count ? c + r : count - 1) * x_row;
    float *to = panel + c;
    int64_t d = 0;
    for (; d + 4 <= D; d += 4, to += 4 * ATTENTION_PANEL) {
      const volta_vector x0 = panel_gather(row + 0, d), x1 = panel_gather(row + 1, d);
      const volta_vector x2 = panel_gather(row + 2, d), x3 = panel_gather(row + 3, d);
      const volta_vector low01 = VECTOR(unpacklo_ps)(x0, x1), high01 = VECTOR(unpackhi_ps)(x0, x1);
      const volta_vector low23 = VECTOR(unpacklo_ps)(x2, x3), high23 = VECTOR(unpackhi_ps)(x2, x3);
      for (int64_t r = 0; r < 4; r++) /* a line of every row of the next vector per 16 elements */
        __builtin_prefetch(row[((d & 12) + r) % VOLTA_WIDTH] + VOLTA_WIDTH * x_row +
                           (d & ~(int64_t)15));
      VECTOR(storeu_ps)(to, VECTOR(shuffle_ps)(low01, low23, 0x44));
      VECTOR(storeu_ps)(to + ATTENTION_PANEL, VECTOR(shuffle_ps)(low01, low23, 0xee));
      VECTOR(storeu_ps)(to + 2 * ATTENTION_PANEL, VECTOR(shuffle_ps)(high01, high23, 0x44));
      VECTOR(storeu_ps)(to + 3 * ATTENTION_PANEL, VECTOR(shuffle_ps)(high01, high23, 0xee));
    }
    for (; d < D; d++, to += ATTENTION_PANEL)
      for (int64_t r = 0; r < VOLTA_WIDTH; r++) to[r] = row[r][d];
  }
}

#endif
