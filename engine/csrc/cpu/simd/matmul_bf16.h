/* The register tiles of N9: bf16 by bf16, in blocks of 32 k:
 *
 *   e = o = +0;  e = fma(a[2i], b[2i], e), o = fma(a[2i+1], b[2i+1], o) for 16 pairs;  c = c + (e + o)
 *
 * with subnormals flushed. A and B are packed into words, of the even and the odd chain by turns.
 * Where the processor has VDPBF16PS a word is two consecutive elements of a chain, the earlier one in
 * the upper half, because the instruction takes upper * upper first, then lower * lower, each a fused
 * step that rounds and flushes: two steps of the chain. Elsewhere a word is one element as f32 and
 * the step is an fma in a thread that flushes subnormals.
 */
#ifndef VOLTA_SIMD_MATMUL_BF16_H
#define VOLTA_SIMD_MATMUL_BF16_H

#include "../matmul_tile.h"
#include "matmul_vector.h"

#if defined(__AVX512BF16__)
#define CHAIN_WORDS 8
#define CHAIN_STEPS 2 /* elements of one chain in a word */
static inline __attribute__((always_inline)) vector chain_step(vector sum, const float *a,
                                                               vector b) {
  /* the splat last: the instruction can take it from memory */
  return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_castps_si512(b),
                          (__m512bh)_mm512_castps_si512(vector_splat(a)));
}
#else
#define CHAIN_WORDS 16
#define CHAIN_STEPS 1
static inline __attribute__((always_inline)) vector chain_step(vector sum, const float *a,
                                                               vector b) {
  return vector_fma(vector_splat(a), b, sum);
}
#endif
#define BLOCK_K 32
#define BLOCK_WORDS (2 * CHAIN_WORDS)

#if WIDTH == 16
#define CHAIN_ROWS_LIMIT 6
#define CHAIN_VECTORS_LIMIT 3
#else
#define CHAIN_ROWS_LIMIT 6
#define CHAIN_VECTORS_LIMIT 2
#endif

#define CHAIN_EACH \
  _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++) \
      _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)

static inline
    __attribute__((always_inline)) void chain_body(const int rows, const int vectors,
                                                   const int masked, const volta_tile_call *t) {
  vector even[CHAIN_ROWS_LIMIT][CHAIN_VECTORS_LIMIT], odd[CHAIN_ROWS_LIMIT][CHAIN_VECTORS_LIMIT];
  const int64_t a_rs = t->a_rs, b_rs = t->b_rs, c_rs = t->c_rs, ahead = t->ahead * b_rs;
  const vector_mask mask = vector_mask_of(masked ? t->columns : WIDTH);
  const int last = masked ? vectors - 1 : vectors;
  /* two bases and one distance reach six rows; the empty asm hides from the compiler that the bases
   * are related, or it would keep one offset per row and spill them */
  const float *low = t->a, *high = low + 3 * a_rs, *b = t->b;
  __asm__("" : "+r"(high));
  int resume = t->resume != 0;
  for (int i = 0; i < rows; i++) /* the piece of C below, needed one tile from now */
    for (int v = 0; v < vectors; v += 16 / WIDTH)
      __builtin_prefetch(t->c + (rows + i) * c_rs + v * WIDTH, 1, 2);
  for (int64_t k = 0; k < t->k; k += BLOCK_K, resume = 1) {
    CHAIN_EACH even[i][v] = odd[i][v] = vector_zero();
    for (int w = 0; w < CHAIN_WORDS; w++, low += 2, high += 2, b += 2 * b_rs) {
      if (rows > 3) __asm__("" : "+r"(high));
      vector e[CHAIN_VECTORS_LIMIT], o[CHAIN_VECTORS_LIMIT];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) {
        e[v] = vector_load(b + v * WIDTH);
        o[v] = vector_load(b + b_rs + v * WIDTH);
        __builtin_prefetch(b + ahead + v * WIDTH);
        __builtin_prefetch(b + ahead + b_rs + v * WIDTH);
      }
      CHAIN_EACH {
        const float *a = (i < 3 ? low : high) + i % 3 * a_rs;
        even[i][v] = chain_step(even[i][v], a, e[v]);
        odd[i][v] = chain_step(odd[i][v], a + 1, o[v]);
      }
    }
    CHAIN_EACH {
      float *const c = t->c + i * c_rs + v * WIDTH;
      vector sum = vector_add(even[i][v], odd[i][v]);
      const vector before = !resume    ? vector_zero()
                            : v < last ? vector_load(c)
                                       : vector_load_masked(c, mask);
      sum = vector_add(before, sum);
      if (v < last)
        vector_store(c, sum);
      else
        vector_store_masked(c, sum, mask);
    }
  }
}

#define CHAIN(R, V) \
  static void chain_##R##_##V(const volta_tile_call *t) { chain_body(R, V, 0, t); } \
  static void chain_##R##_##V##_masked(const volta_tile_call *t) { chain_body(R, V, 1, t); }
#define CHAIN_TO_3(X, V) X(1, V) X(2, V) X(3, V)
#define CHAIN_TO_4(X, V) CHAIN_TO_3(X, V) X(4, V)
#define CHAIN_TO_6(X, V) CHAIN_TO_4(X, V) X(5, V) X(6, V)
#define CHAIN_ENTRY(R, V) [R - 1] = chain_##R##_##V,
#define CHAIN_ENTRY_MASKED(R, V) [R - 1] = chain_##R##_##V##_masked,

#if WIDTH == 16
CHAIN_TO_6(CHAIN, 1)
CHAIN_TO_6(CHAIN, 2)
CHAIN_TO_4(CHAIN, 3)
#define CHAIN_TABLE(X) \
  { \
    {CHAIN_TO_6(X, 1)}, {CHAIN_TO_6(X, 2)}, { CHAIN_TO_4(X, 3) } \
  }
#define CHAIN_ROWS_OF {6, 6, 4}
#else
CHAIN_TO_6(CHAIN, 1)
CHAIN_TO_3(CHAIN, 2)
#define CHAIN_TABLE(X) \
  { \
    {CHAIN_TO_6(X, 1)}, { CHAIN_TO_3(X, 2) } \
  }
#define CHAIN_ROWS_OF {6, 3}
#endif
static const volta_tile chain_tiles[2][CHAIN_VECTORS_LIMIT][CHAIN_ROWS_LIMIT] = {
    CHAIN_TABLE(CHAIN_ENTRY), CHAIN_TABLE(CHAIN_ENTRY_MASKED)};
#define CHAIN_TILES \
  .tiles = &chain_tiles[0][0][0], .vectors_limit = CHAIN_VECTORS_LIMIT, \
  .rows_limit = CHAIN_ROWS_OF, .masked_stride = CHAIN_VECTORS_LIMIT * CHAIN_ROWS_LIMIT, \
  .vectors_stride = CHAIN_ROWS_LIMIT, .rows_stride = 1

/* --- copies ----------------------------------------------------------------------------------- */

/* The word that holds element k of a block of 32: of four, 0 and 2 share one and 1 and 3 the next. */
static inline int chain_word(int k) { return CHAIN_STEPS == 1 ? k : k / 4 * 2 + (k & 1); }

/* 32 elements of one row. */
static inline void chain_row(const uint16_t *x, float *out) {
#if CHAIN_STEPS == 2
  static const uint16_t order[32] = {2,  0,  3,  1,  6,  4,  7,  5,  10, 8,  11,
                                     9,  14, 12, 15, 13, 18, 16, 19, 17, 22, 20,
                                     23, 21, 26, 24, 27, 25, 30, 28, 31, 29};
  _mm512_storeu_si512(out,
                      _mm512_permutexvar_epi16(_mm512_loadu_si512(order), _mm512_loadu_si512(x)));
#else
  for (int k = 0; k < BLOCK_K; k += WIDTH) vector_store(out + k, vector_from_bf16(x + k));
#endif
}

/* WIDTH columns of 32 rows of B, the rows' elements side by side -> BLOCK_WORDS rows of words. */
static inline void chain_columns(const uint16_t *const *rows, float *out, int64_t nr) {
#pragma GCC unroll 8
  for (int k = 0; k < BLOCK_K; k++) {
#if CHAIN_STEPS == 2
    if (k % 4 > 1) continue; /* the lower half of a word that k - 2 began */
    const __m512i upper = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)rows[k]));
    const __m512i lower = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)rows[k + 2]));
    _mm512_storeu_si512(out + chain_word(k) * nr,
                        _mm512_or_si512(_mm512_slli_epi32(upper, 16), lower));
#else
    vector_store(out + chain_word(k) * nr, vector_from_bf16(rows[k]));
#endif
  }
}

/* Columns of A of unit stride: WIDTH rows at a time, 32 k of each turned in registers. */
static inline void chain_rows_turned(const uint16_t *a, int64_t cs, int64_t depth, int64_t rows,
                                     float *out, int64_t pitch) {
  uint16_t block[BLOCK_K][WIDTH];
  const uint16_t *lines[BLOCK_K];
  float words[BLOCK_WORDS][WIDTH];
  for (int64_t k = 0; k < BLOCK_K; k++) {
    lines[k] = a + k * cs;
    if (k < depth && rows == WIDTH) {
      __builtin_prefetch(lines[k] + BLOCK_K * cs);
      continue;
    }
    for (int64_t i = 0; i < WIDTH; i++) block[k][i] = k < depth && i < rows ? lines[k][i] : 0;
    lines[k] = block[k];
  }
  chain_columns(lines, words[0], WIDTH);
  for (int w = 0; w < BLOCK_WORDS; w += WIDTH) {
    vector turned[WIDTH];
#pragma GCC unroll 16
    for (int x = 0; x < WIDTH; x++) turned[x] = vector_load(words[w + x]);
    vector_transpose(turned);
    for (int64_t i = 0; i < rows; i++) vector_store(out + i * pitch + w, turned[i]);
  }
}

static void pack_a_bf16(volta_pack_a *p) {
  const uint16_t *a = p->a;
  float *out = p->out;
  const int64_t rows = p->first[p->tiles];
  p->out_rs = p->pitch, p->out_cs = 1;
  if (p->cs != 1 && p->rs == 1) {
    for (int64_t i = 0; i < rows; i += WIDTH)
      for (int64_t k = 0; k < p->depth; k += BLOCK_K)
        chain_rows_turned(a + i + k * p->cs, p->cs, p->depth - k,
                          rows - i < WIDTH ? rows - i : WIDTH,
                          out + i * p->pitch + k / BLOCK_K * BLOCK_WORDS, p->pitch);
    return;
  }
  for (int64_t i = 0; i < rows; i++, a += p->rs, out += p->pitch) {
    int64_t k = 0;
    float *words = out;
    for (; p->cs == 1 && k + BLOCK_K <= p->depth; k += BLOCK_K, words += BLOCK_WORDS)
      chain_row(a + k, words);
    for (; k < p->depth; k += BLOCK_K, words += BLOCK_WORDS) {
      uint16_t row[BLOCK_K] = {0}; /* the last block is padded with +0 */
      for (int64_t x = 0; x < BLOCK_K && k + x < p->depth; x++) row[x] = a[(k + x) * p->cs];
      chain_row(row, words);
    }
  }
}

/* A transposed view: 32 elements of each of WIDTH columns, of which `width` exist. */
static inline void chain_turned(const uint16_t *b, int64_t cs, int64_t width, float *out,
                                int64_t nr) {
  float words[WIDTH][BLOCK_WORDS] = {{0}};
  for (int64_t x = 0; x < width; x++) {
    __builtin_prefetch(b + x * cs + 2 * BLOCK_K);
    chain_row(b + x * cs, words[x]);
  }
  for (int w = 0; w < BLOCK_WORDS; w += WIDTH) {
    vector block[WIDTH];
#pragma GCC unroll 16
    for (int x = 0; x < WIDTH; x++) block[x] = vector_load(words[x] + w);
    vector_transpose(block);
#pragma GCC unroll 16
    for (int x = 0; x < WIDTH; x++) vector_store(out + (w + x) * nr, block[x]);
  }
}

static void pack_b_bf16(const volta_pack_b *p) {
  static const uint16_t zeros[WIDTH];
  const uint16_t *b = p->b;
  float *out = p->out;
  for (int64_t k = 0; k < p->depth; k += BLOCK_K, out += BLOCK_WORDS * p->nr) {
    const int64_t depth = p->depth - k < BLOCK_K ? p->depth - k : BLOCK_K;
    for (int64_t j = 0; j < p->nr; j += WIDTH) {
      const int64_t left = p->width - j, width = left < 0 ? 0 : left < WIDTH ? left : WIDTH;
      if (p->cs == 1 && width == WIDTH) {
        const uint16_t *rows[BLOCK_K];
        for (int64_t x = 0; x < BLOCK_K; x++) rows[x] = x < depth ? b + (k + x) * p->rs + j : zeros;
        for (int64_t x = 0; x < depth; x++) __builtin_prefetch(rows[x] + BLOCK_K * p->rs);
        chain_columns(rows, out + j, p->nr);
      } else if (p->rs == 1 && depth == BLOCK_K) {
        chain_turned(b + j * p->cs + k, p->cs, width, out + j, p->nr);
      } else {
        uint16_t block[BLOCK_K][WIDTH] = {{0}};
        const uint16_t *rows[BLOCK_K];
        for (int64_t x = 0; x < BLOCK_K; x++) {
          rows[x] = block[x];
          for (int64_t y = 0; x < depth && y < width; y++)
            block[x][y] = b[(k + x) * p->rs + (j + y) * p->cs];
        }
        chain_columns(rows, out + j, p->nr);
      }
    }
  }
}

/* --- few rows --------------------------------------------------------------------------------- */
#if CHAIN_STEPS == 1
#define CHAIN_FEW_ROWS 4
/* B by rows in place, read once: the chains of WIDTH columns stay in registers for one block. */
static inline __attribute__((always_inline)) void few_chain_body(const int rows,
                                                                 const volta_few_call *f) {
  const uint16_t *a = f->a, *b = f->b;
  for (int64_t k = 0; k < f->k; k += BLOCK_K) {
    const int64_t depth = f->k - k < BLOCK_K ? f->k - k : BLOCK_K;
    float x[CHAIN_FEW_ROWS][BLOCK_K] = {{0}};
    for (int i = 0; i < rows; i++)
      for (int64_t d = 0; d < depth; d++)
        x[i][d] = volta_f32_from_bf16(a[i * f->a_rs + (k + d) * f->a_cs]);
    for (int64_t j = 0; j < f->width; j += WIDTH) {
      const int64_t width = f->width - j < WIDTH ? f->width - j : WIDTH;
      const vector_mask mask = vector_mask_of(width);
      vector chain[CHAIN_FEW_ROWS][2];
#pragma GCC unroll 4
      for (int i = 0; i < rows; i++) chain[i][0] = chain[i][1] = vector_zero();
#pragma GCC unroll 2
      for (int64_t d = 0; d < BLOCK_K; d++) {
        vector y = vector_zero();
        if (d < depth) {
          const uint16_t *row = b + (k + d) * f->b_s + j;
          y = width == WIDTH ? vector_from_bf16(row) : vector_widen_first(row, VOLTA_BF16, width);
        }
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
          chain[i][d & 1] = vector_fma(vector_splat(&x[i][d]), y, chain[i][d & 1]);
      }
#pragma GCC unroll 4
      for (int i = 0; i < rows; i++) {
        float *c = f->c + i * f->c_rs + j;
        const vector before = k > 0 ? vector_load_masked(c, mask) : vector_zero();
        vector_store_masked(c, vector_add(before, vector_add(chain[i][0], chain[i][1])), mask);
      }
    }
  }
}
static void few_chain_1(const volta_few_call *f) { few_chain_body(1, f); }
static void few_chain_2(const volta_few_call *f) { few_chain_body(2, f); }
static void few_chain_3(const volta_few_call *f) { few_chain_body(3, f); }
static void few_chain_4(const volta_few_call *f) { few_chain_body(4, f); }
static const volta_few few_chains[CHAIN_FEW_ROWS] = {few_chain_1, few_chain_2, few_chain_3,
                                                     few_chain_4};
#endif

#endif
