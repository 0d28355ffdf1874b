/* The register tiles of N10: int8 by int8. Per group of k the products add up exactly in 32-bit
 * integers, in any order; then C = C + f32(sum) * scale, each rounded.
 *
 * A word holds the next elements of one row or column:
 *   VNNI      four: B as unsigned bytes b + 128, A as signed ones; each group of packed A ends with
 *             -128 times the sums of its rows, which the sums of C start from
 *   else      two 16-bit numbers, multiplied and added in pairs (no saturation can occur)
 */
#ifndef VOLTA_SIMD_MATMUL_I8_H
#define VOLTA_SIMD_MATMUL_I8_H

#include "../matmul_tile.h"
#include "matmul_vector.h"

#if WIDTH == 16
#define i32_zero _mm512_setzero_si512
#define i32_add _mm512_add_epi32
#define i32_splat(x) _mm512_set1_epi32(*(x))
#define i32_load(x) _mm512_loadu_si512(x)
#define i32_store(x, v) _mm512_storeu_si512(x, v)
#define i32_to_f32 _mm512_cvtepi32_ps
#define i16_pairs _mm512_madd_epi16
#else
#define i32_zero _mm256_setzero_si256
#define i32_add _mm256_add_epi32
#define i32_splat(x) _mm256_set1_epi32(*(x))
#define i32_load(x) _mm256_loadu_si256((const void *)(x))
#define i32_store(x, v) _mm256_storeu_si256((void *)(x), v)
#define i32_to_f32 _mm256_cvtepi32_ps
#define i16_pairs _mm256_madd_epi16
#endif

#if defined(__AVX512VNNI__)
#define WORD_K 4
#define WORD_BYTES 1
/* sum[v] += a word of A by the words b[v] of B. In assembly, because with intrinsics the compiler
 * loads the splats of all rows first and then spills the sums. */
static inline __attribute__((always_inline)) void
word_step(vector_i32 *sum, const int32_t *a, const vector_i32 *b, const int vectors) {
  vector_i32 splat;
  if (vectors == 2)
    __asm__("vpbroadcastd %3, %2\n\tvpdpbusd %2, %4, %0\n\tvpdpbusd %2, %5, %1"
            : "+v"(sum[0]), "+v"(sum[1]), "=&v"(splat)
            : "m"(*a), "v"(b[0]), "v"(b[1]));
  else
    __asm__("vpdpbusd %1%{1to16%}, %2, %0" : "+v"(sum[0]) : "m"(*a), "v"(b[0]));
}
#else
#define WORD_K 2
#define WORD_BYTES 2
static inline __attribute__((always_inline)) void
word_step(vector_i32 *sum, const int32_t *a, const vector_i32 *b, const int vectors) {
  const vector_i32 splat = i32_splat(a);
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) sum[v] = i32_add(sum[v], i16_pairs(splat, b[v]));
}
#endif

#if WIDTH == 16
#define WORD_ROWS_LIMIT 14
#else
#define WORD_ROWS_LIMIT 6
#endif
#define WORD_VECTORS_LIMIT 2

#define WORD_EACH \
  _Pragma("GCC unroll 16") for (int i = 0; i < rows; i++) \
      _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)

static inline int64_t words_of(int64_t k) { return (k + WORD_K - 1) / WORD_K; }

/* Rows per base address: five are reached from one with strides 1, 2, 4 (scaled index) and 3 (one more
 * register). */
#define WORD_BASE 5

static inline __attribute__((always_inline))
const int32_t *word_at(const int32_t *a0, const int32_t *a1, const int32_t *a2, int64_t a_rs,
                       int i) {
  return (i < WORD_BASE ? a0 : i < 2 * WORD_BASE ? a1 : a2) + i % WORD_BASE * a_rs;
}

static inline __attribute__((always_inline)) void
word_body(const int rows, const int vectors, const int masked, const volta_tile_call *t) {
  vector_i32 sum[WORD_ROWS_LIMIT][WORD_VECTORS_LIMIT], b[WORD_VECTORS_LIMIT];
  const int64_t a_rs = t->a_rs, b_rs = t->b_rs, c_rs = t->c_rs, ahead = t->ahead * b_rs;
  const int64_t words = words_of(t->group);
  const vector_mask mask = vector_mask_of(masked ? t->columns : WIDTH);
  const int last = masked ? vectors - 1 : vectors;
  const int32_t *a0 = t->a, *a1 = a0 + WORD_BASE * a_rs, *a2 = a1 + WORD_BASE * a_rs, *from = t->b;
  const float *scale = t->scale;
  int resume = t->resume != 0;
  for (int64_t g = 0; g < t->k; g += t->group, scale += t->scale_rs, resume = 1) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
      const vector_i32 start =
          WORD_K == 4 ? i32_splat(word_at(a0, a1, a2, a_rs, i) + words) : i32_zero();
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) sum[i][v] = start;
    }
    for (int64_t w = 0; w < words; w++, a0++, a1++, a2++, from += b_rs) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) {
        b[v] = i32_load(from + v * WIDTH);
        __builtin_prefetch(from + ahead + v * WIDTH);
      }
      if (rows > WORD_BASE) __asm__("" : "+r"(a1));
      if (rows > 2 * WORD_BASE) __asm__("" : "+r"(a2));
#pragma GCC unroll 16
      for (int i = 0; i < rows; i++) word_step(sum[i], word_at(a0, a1, a2, a_rs, i), b, vectors);
    }
    if (WORD_K == 4) a0++, a1++, a2++;
    WORD_EACH {
      float *const c = t->c + i * c_rs + v * WIDTH;
      const vector factor =
          v < last ? vector_load(scale + v * WIDTH) : vector_load_masked(scale + v * WIDTH, mask);
      const vector before = !resume    ? vector_zero()
                            : v < last ? vector_load(c)
                                       : vector_load_masked(c, mask);
      const vector after = vector_add(before, vector_mul(i32_to_f32(sum[i][v]), factor));
      if (v < last)
        vector_store(c, after);
      else
        vector_store_masked(c, after, mask);
    }
  }
}

#define WORD(R, V) \
  static void word_##R##_##V(const volta_tile_call *t) { word_body(R, V, 0, t); } \
  static void word_##R##_##V##_masked(const volta_tile_call *t) { word_body(R, V, 1, t); }
#define WORD_TO_6(X, V) X(1, V) X(2, V) X(3, V) X(4, V) X(5, V) X(6, V)
#define WORD_TO_14(X, V) \
  WORD_TO_6(X, V) X(7, V) X(8, V) X(9, V) X(10, V) X(11, V) X(12, V) X(13, V) X(14, V)
#define WORD_ENTRY(R, V) [R - 1] = word_##R##_##V,
#define WORD_ENTRY_MASKED(R, V) [R - 1] = word_##R##_##V##_masked,

#if WIDTH == 16
#define WORD_TO WORD_TO_14
#else
#define WORD_TO WORD_TO_6
#endif
WORD_TO(WORD, 1)
WORD_TO(WORD, 2)
#define WORD_TABLE(X) \
  { \
    {WORD_TO(X, 1)}, { WORD_TO(X, 2) } \
  }
#define WORD_ROWS_OF {WORD_ROWS_LIMIT, WORD_ROWS_LIMIT}
static const volta_tile word_tiles[2][WORD_VECTORS_LIMIT][WORD_ROWS_LIMIT] = {
    WORD_TABLE(WORD_ENTRY), WORD_TABLE(WORD_ENTRY_MASKED)};
#define WORD_TILES \
  .tiles = &word_tiles[0][0][0], .vectors_limit = WORD_VECTORS_LIMIT, .rows_limit = WORD_ROWS_OF, \
  .masked_stride = WORD_VECTORS_LIMIT * WORD_ROWS_LIMIT, .vectors_stride = WORD_ROWS_LIMIT, \
  .rows_stride = 1

/* --- copies ----------------------------------------------------------------------------------- */

/* One group of a row of A in words, the last one filled with zeros; with VNNI then -128 times its sum. */
static inline void word_row(const int8_t *x, int64_t stride, int64_t count, int32_t *words) {
  int64_t k = 0;
#if WORD_K == 4
  int8_t *out = (int8_t *)words;
  int32_t total = 0;
  if (stride == 1) {
    __builtin_memcpy(out, x, (size_t)count);
    for (; k < count; k++) total += x[k];
  }
  for (; k < count; k++) {
    out[k] = x[k * stride];
    total += out[k];
  }
  for (; k % WORD_K != 0; k++) out[k] = 0;
  words[k / WORD_K] = -128 * total;
#else
  int16_t *out = (int16_t *)words;
  for (; stride == 1 && k + 16 <= count; k += 16)
    _mm256_storeu_si256((void *)(out + k),
                        _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(x + k))));
  for (; k < count; k++) out[k] = x[k * stride];
  for (; k % WORD_K != 0; k++) out[k] = 0;
#endif
}

static void pack_a_i8(volta_pack_a *p) {
  const int8_t *a = p->a;
  int32_t *out = p->out;
  p->out_rs = p->pitch, p->out_cs = 1;
  const int64_t words = words_of(p->group) + (WORD_K == 4);
  for (int64_t i = 0; i < p->first[p->tiles]; i++, a += p->rs, out += p->pitch)
    for (int64_t g = 0; g * p->group < p->depth; g++)
      word_row(a + g * p->group * p->cs, p->cs, p->group, out + g * words);
}

/* The next WORD_K rows of B, WIDTH columns of which `width` exist -> one row of words. */
static inline void word_columns(const int8_t *b, int64_t rs, int64_t cs, int64_t depth,
                                int64_t width, int32_t *out) {
  int8_t x[WORD_K][WIDTH] = {{0}};
  for (int64_t k = 0; k < depth; k++)
    for (int64_t j = 0; j < width; j++) x[k][j] = b[k * rs + j * cs];
  for (int64_t j = 0; j < WIDTH; j++) {
    uint32_t word = 0;
    for (int k = 0; k < WORD_K; k++)
      word |= (WORD_K == 4 ? (uint32_t)(uint8_t)(x[k][j] ^ 0x80) : (uint32_t)(uint16_t)x[k][j])
              << (32 / WORD_K * k);
    out[j] = (int32_t)word;
  }
}

#if WIDTH == 16
static inline __m512i bytes_of_row(const int8_t *b) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)b));
}
static inline __m512i shorts_of_row(const int8_t *b) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)b));
}
#else
static inline __m256i shorts_of_row(const int8_t *b) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)b));
}
#endif

/* The same for whole words and whole vectors of rows of unit stride. */
static inline void word_columns_whole(const int8_t *b, int64_t rs, int32_t *out) {
#if WIDTH == 16 && WORD_K == 4
  __m512i word = bytes_of_row(b);
  word = _mm512_or_si512(word, _mm512_slli_epi32(bytes_of_row(b + rs), 8));
  word = _mm512_or_si512(word, _mm512_slli_epi32(bytes_of_row(b + 2 * rs), 16));
  word = _mm512_or_si512(word, _mm512_slli_epi32(bytes_of_row(b + 3 * rs), 24));
  i32_store(out, _mm512_xor_si512(word, _mm512_set1_epi8((char)0x80)));
#elif WIDTH == 16
  const __m512i low = _mm512_and_si512(shorts_of_row(b), _mm512_set1_epi32(0xffff));
  i32_store(out, _mm512_or_si512(low, _mm512_slli_epi32(shorts_of_row(b + rs), 16)));
#else
  const __m256i low = _mm256_and_si256(shorts_of_row(b), _mm256_set1_epi32(0xffff));
  i32_store(out, _mm256_or_si256(low, _mm256_slli_epi32(shorts_of_row(b + rs), 16)));
#endif
}

/* A transposed view: the words of WIDTH elements' worth of each of WIDTH columns, of which `width`
 * exist: WIDTH * WORD_K rows of B. */
#define TURNED_K (WIDTH * WORD_K)
static inline void word_turned(const int8_t *b, int64_t cs, int64_t width, int32_t *out,
                               int64_t nr) {
  int32_t words[WIDTH][WIDTH] = {{0}};
  for (int64_t x = 0; x < width; x++) {
    const int8_t *column = b + x * cs;
    __builtin_prefetch(column + 2 * TURNED_K);
    if (WORD_K == 4)
      __builtin_memcpy(words[x], column, sizeof words[x]);
    else
      for (int k = 0; k < TURNED_K; k++) ((int16_t *)words[x])[k] = column[k];
  }
  vector block[WIDTH];
#pragma GCC unroll 16
  for (int x = 0; x < WIDTH; x++) block[x] = vector_load((const float *)words[x]);
  vector_transpose(block);
#pragma GCC unroll 16
  for (int x = 0; x < WIDTH; x++) {
    vector_store((float *)(out + x * nr), block[x]);
#if WORD_K == 4
    i32_store(out + x * nr, _mm512_xor_si512(i32_load(out + x * nr), _mm512_set1_epi8((char)0x80)));
#endif
  }
}

/* The words of one group for WIDTH columns, of which `width` exist. */
static inline void word_panel(const volta_pack_b *p, const int8_t *b, int64_t width, int32_t *out) {
  int64_t k = 0;
  if (p->rs == 1)
    for (; k + TURNED_K <= p->group; k += TURNED_K, out += WIDTH * p->nr)
      word_turned(b + k, p->cs, width, out, p->nr);
  for (; k < p->group; k += WORD_K, out += p->nr) {
    const int64_t depth = p->group - k < WORD_K ? p->group - k : WORD_K;
    const int8_t *from = b + k * p->rs;
    if (p->cs == 1 && depth == WORD_K && width == WIDTH)
      word_columns_whole(from, p->rs, out);
    else
      word_columns(from, p->rs, p->cs, depth, width, out);
  }
}

static void pack_b_i8(const volta_pack_b *p) {
  const int8_t *b = p->b;
  int32_t *out = p->out;
  const int64_t rows = words_of(p->group);
  for (int64_t g = 0; g < p->depth; g += p->group, b += p->group * p->rs, out += rows * p->nr)
    for (int64_t j = 0; j < p->nr; j += WIDTH) {
      const int64_t left = p->width - j;
      word_panel(p, b + j * p->cs, left < 0 ? 0 : left < WIDTH ? left : WIDTH, out + j);
    }
}

#endif
