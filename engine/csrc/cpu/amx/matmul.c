#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target( \
    "amx-tile,amx-bf16,amx-int8,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
/* N9 and N10 with AMX tiles: 32 x 32 of C as four tiles of 16 x 16.
 *
 * TDPBF16PS takes 32 k at once: two chains of 16 fused steps from +0, even and odd, then
 * c + (even + odd), flushing subnormals. That is one block of N9. TDPBSSD takes 64 k of int8 and is
 * exact. A is packed by rows, B in words of two bf16 or four int8 of a column.
 *
 * Tests compile this file with an emulation of the tile instructions on machines without them.
 */
#ifndef VOLTA_AMX_EMULATED
#include <immintrin.h>
#endif

#include <string.h>

#include "../matmul_tile.h"
#include "../simd/matmul_vector.h"

#define TILE 16 /* rows of a tile, and its columns of 32 bits */
#define SIDE (2 * TILE)
#define ROW_BYTES 64

/* Palette 1: eight tiles of 16 rows by 64 bytes. A constant: GCC 12's intrinsic says that it reads 8 bytes
 * of its 64, so stores to the others could be dropped. */
static const struct {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_config = {
    .palette = 1,
    .row_bytes = {ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES,
                  ROW_BYTES},
    .rows = {TILE, TILE, TILE, TILE, TILE, TILE, TILE, TILE},
};
_Static_assert(sizeof tile_config == 64, "what LDTILECFG reads");

/* The intrinsics do not tell the compiler which memory a tile is loaded from. */
#define MEMORY_IS_WRITTEN() __asm__ volatile("" ::: "memory")

static void amx_begin(void) { _tile_loadconfig(&tile_config); }

static void amx_end(void) { _tile_release(); }

/* --- N9 --------------------------------------------------------------------------------------- */

/* C [32, columns of 16 each] += A B over k in steps of 32; `wide`: two tiles of columns, else one. */
static void bf16_tiles(const volta_tile_call *t, float *c, int64_t c_rs, int tall, int wide) {
  const int64_t a_bytes = t->a_rs * 4, b_bytes = t->b_rs * 4, c_bytes = c_rs * 4;
  const char *a = t->a, *b = t->b;
  MEMORY_IS_WRITTEN();
  if (t->resume) {
    _tile_loadd(0, c, c_bytes);
    if (wide) _tile_loadd(1, c + TILE, c_bytes);
    if (tall) _tile_loadd(2, c + TILE * c_rs, c_bytes);
    if (tall && wide) _tile_loadd(3, c + TILE * c_rs + TILE, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t k = 0; k < t->k; k += 32, a += ROW_BYTES, b += TILE * b_bytes) {
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, b, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if (wide) {
      _tile_loadd(7, b + ROW_BYTES, b_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (tall) {
      _tile_loadd(5, a + TILE * a_bytes, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
    }
    if (tall && wide) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, c_bytes);
  if (wide) _tile_stored(1, c + TILE, c_bytes);
  if (tall) _tile_stored(2, c + TILE * c_rs, c_bytes);
  if (tall && wide) _tile_stored(3, c + TILE * c_rs + TILE, c_bytes);
  MEMORY_IS_WRITTEN();
}

static void copy_part(float *to, int64_t to_rs, const float *from, int64_t from_rs, int64_t rows,
                      int64_t columns) {
  for (int64_t i = 0; i < rows; i++)
    memcpy(to + i * to_rs, from + i * from_rs, (size_t)columns * sizeof *to);
}

static void bf16_tile(const volta_tile_call *t, int64_t columns) {
  const int tall = t->rows > TILE, wide = columns > TILE;
  if (t->rows == (tall + 1) * TILE && columns == (wide + 1) * TILE) {
    bf16_tiles(t, t->c, t->c_rs, tall, wide);
    return;
  }
  float whole[SIDE * SIDE];
  if (t->resume) {
    memset(whole, 0, sizeof whole);
    copy_part(whole, SIDE, t->c, t->c_rs, t->rows, columns);
  }
  bf16_tiles(t, whole, SIDE, tall, wide);
  copy_part(t->c, t->c_rs, whole, SIDE, t->rows, columns);
}

static void bf16_tile_1(const volta_tile_call *t) { bf16_tile(t, TILE); }
static void bf16_tile_2(const volta_tile_call *t) { bf16_tile(t, 2 * TILE); }
static void bf16_tile_1_masked(const volta_tile_call *t) { bf16_tile(t, t->columns); }
static void bf16_tile_2_masked(const volta_tile_call *t) { bf16_tile(t, TILE + t->columns); }
static const volta_tile bf16_tile_table[2][2][1] = {{{bf16_tile_1}, {bf16_tile_2}},
                                                    {{bf16_tile_1_masked}, {bf16_tile_2_masked}}};

/* --- N10 -------------------------------------------------------------------------------------- */

/* The exact sums of one group, [32, 32]. */
static void i8_tiles(const char *a, int64_t a_bytes, const char *b, int64_t b_bytes, int64_t group,
                     int32_t *sums, int tall, int wide) {
  MEMORY_IS_WRITTEN();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < group; k += 64, a += ROW_BYTES, b += TILE * b_bytes) {
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, b, b_bytes);
    _tile_dpbssd(0, 4, 6);
    if (wide) {
      _tile_loadd(7, b + ROW_BYTES, b_bytes);
      _tile_dpbssd(1, 4, 7);
    }
    if (tall) {
      _tile_loadd(5, a + TILE * a_bytes, a_bytes);
      _tile_dpbssd(2, 5, 6);
    }
    if (tall && wide) _tile_dpbssd(3, 5, 7);
  }
  _tile_stored(0, sums, SIDE * 4);
  if (wide) _tile_stored(1, sums + TILE, SIDE * 4);
  if (tall) _tile_stored(2, sums + TILE * SIDE, SIDE * 4);
  if (tall && wide) _tile_stored(3, sums + TILE * SIDE + TILE, SIDE * 4);
  MEMORY_IS_WRITTEN();
}

static int64_t padded(int64_t k) { return (k + 63) / 64 * 64; }

static void i8_tile(const volta_tile_call *t, int64_t columns) {
  const int tall = t->rows > TILE, wide = columns > TILE;
  const int64_t depth = padded(t->group);
  const char *a = t->a, *b = t->b;
  const float *scale = t->scale;
  int resume = t->resume != 0;
  int32_t sums[SIDE * SIDE];
  for (int64_t g = 0; g < t->k; g += t->group, scale += t->scale_rs, resume = 1) {
    i8_tiles(a, t->a_rs * 4, b, t->b_rs * 4, depth, sums, tall, wide);
    a += depth, b += depth / 4 * t->b_rs * 4;
    for (int64_t i = 0; i < t->rows; i++)
      for (int64_t j = 0; j < columns; j++) {
        float *c = t->c + i * t->c_rs + j;
        const float part = (float)sums[i * SIDE + j] * scale[j];
        *c = (resume ? *c : 0.0f) + part;
      }
  }
}

static void i8_tile_1(const volta_tile_call *t) { i8_tile(t, TILE); }
static void i8_tile_2(const volta_tile_call *t) { i8_tile(t, 2 * TILE); }
static void i8_tile_1_masked(const volta_tile_call *t) { i8_tile(t, t->columns); }
static void i8_tile_2_masked(const volta_tile_call *t) { i8_tile(t, TILE + t->columns); }
static const volta_tile i8_tile_table[2][2][1] = {{{i8_tile_1}, {i8_tile_2}},
                                                  {{i8_tile_1_masked}, {i8_tile_2_masked}}};

/* --- copies ----------------------------------------------------------------------------------- */

/* Rows of A, padded with zeros in k. After the last one come rows of chance: the tile instructions read
 * whole tiles, and what they make of rows beyond the tile's own is dropped. */
static void pack_rows(volta_pack_a *p, int64_t size, int64_t segment, int64_t padded_segment) {
  char *out = p->out;
  p->out_rs = p->pitch, p->out_cs = 1;
  for (int64_t i = 0; i < p->first[p->tiles]; i++, out += p->pitch * 4) {
    const char *a = (const char *)p->a + i * p->rs * size;
    int64_t to = 0;
    for (int64_t k = 0; k < p->depth; k += segment, to += padded_segment) {
      const int64_t count = p->depth - k < segment ? p->depth - k : segment;
      const char *from = a + k * p->cs * size;
      if (p->cs == 1) {
        memcpy(out + to * size, from, (size_t)(count * size));
      } else {
        for (int64_t x = 0; x < count * size; x++)
          out[to * size + x] = from[x / size * p->cs * size + x % size];
      }
      memset(out + (to + count) * size, 0, (size_t)((padded_segment - count) * size));
    }
  }
}

/* Two rows of unit stride, whole: their elements alternate. */
static void interleave_bf16(const uint16_t *even, const uint16_t *odd, uint32_t *out, int64_t nr) {
  for (int64_t j = 0; j < nr; j += TILE) {
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(even + j)));
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(odd + j)));
    _mm512_storeu_si512(out + j, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
}

/* Columns of A of unit stride: 16 rows at a time, 32 k of each turned in registers. */
static void pack_rows_turned(const volta_pack_a *p, int64_t depth) {
  const int64_t rows = p->first[p->tiles];
  for (int64_t i = 0; i < rows; i += TILE)
    for (int64_t k = 0; k < depth; k += 32) {
      const uint16_t *a = (const uint16_t *)p->a + i + k * p->cs;
      const int64_t height = rows - i < TILE ? rows - i : TILE;
      uint16_t line[2][TILE];
      uint32_t words[TILE][TILE];
      for (int64_t pair = 0; pair < TILE; pair++) {
        for (int half = 0; half < 2; half++)
          for (int64_t x = 0; x < TILE; x++)
            line[half][x] =
                x < height && k + 2 * pair + half < p->depth ? a[(2 * pair + half) * p->cs + x] : 0;
        interleave_bf16(line[0], line[1], words[pair], TILE);
      }
      vector block[TILE];
      for (int64_t x = 0; x < TILE; x++) block[x] = vector_load((const float *)words[x]);
      vector_transpose(block);
      for (int64_t x = 0; x < height; x++)
        vector_store((float *)p->out + (i + x) * p->pitch + k / 2, block[x]);
    }
}

static void pack_a_amx_bf16(volta_pack_a *p) {
  const int64_t depth = (p->depth + 31) / 32 * 32;
  if (p->cs == 1 || p->rs != 1) {
    pack_rows(p, 2, p->depth > 0 ? p->depth : 1, depth);
    return;
  }
  p->out_rs = p->pitch, p->out_cs = 1;
  pack_rows_turned(p, depth);
}

static void pack_a_amx_i8(volta_pack_a *p) { pack_rows(p, 1, p->group, padded(p->group)); }

/* Words of `per` elements of a column, [k / per][nr], padded with zeros. */
static void pack_words_bf16(const uint16_t *b, int64_t rs, int64_t cs, int64_t depth, int64_t width,
                            int64_t nr, uint32_t *out) {
  for (int64_t k = 0; k < (depth + 31) / 32 * 32; k += 2, out += nr)
    for (int64_t j = 0; j < nr; j++) {
      uint32_t word = 0;
      if (j < width && k < depth) word = b[k * rs + j * cs];
      if (j < width && k + 1 < depth) word |= (uint32_t)b[(k + 1) * rs + j * cs] << 16;
      out[j] = word;
    }
}

/* A transposed view: 64 bytes of each column, `distance` bytes apart, become 16 rows of words. */
static void turn_words(const void *b, int64_t distance, int64_t width, int64_t nr, uint32_t *out) {
  for (int64_t j = 0; j < nr; j += TILE) {
    vector block[TILE];
    for (int64_t x = 0; x < TILE; x++)
      block[x] = j + x < width ? vector_load((const float *)((const char *)b + (j + x) * distance))
                               : vector_zero();
    vector_transpose(block);
    for (int64_t x = 0; x < TILE; x++) vector_store((float *)out + x * nr + j, block[x]);
  }
}

static void pack_b_amx_bf16(const volta_pack_b *p) {
  const uint16_t *b = p->b;
  uint32_t *out = p->out;
  const int64_t whole = p->cs == 1 && p->width == p->nr ? p->depth / 32 * 32 : 0;
  int64_t k = 0;
  for (; k < whole; k += 2, out += p->nr) {
    for (int64_t line = 0; line < p->nr; line += 32)
      __builtin_prefetch(b + (k + 16) * p->rs + line);
    interleave_bf16(b + k * p->rs, b + (k + 1) * p->rs, out, p->nr);
  }
  if (p->rs == 1)
    for (; k + 32 <= p->depth; k += 32, out += TILE * p->nr)
      turn_words(b + k, p->cs * 2, p->width, p->nr, out);
  if (k < p->depth)
    pack_words_bf16(b + k * p->rs, p->rs, p->cs, p->depth - k, p->width, p->nr, out);
}

static void pack_b_amx_i8(const volta_pack_b *p) {
  const int8_t *b = p->b;
  uint32_t *out = p->out;
  for (int64_t g = 0; g < p->depth; g += p->group, b += p->group * p->rs) {
    int64_t k = 0;
    if (p->rs == 1)
      for (; k + 64 <= p->group; k += 64, out += TILE * p->nr)
        turn_words(b + k, p->cs, p->width, p->nr, out);
    for (; k < padded(p->group); k += 4, out += p->nr)
      for (int64_t j = 0; j < p->nr; j++) {
        uint32_t word = 0;
        for (int64_t x = 0; x < 4 && k + x < p->group && j < p->width; x++)
          word |= (uint32_t)(uint8_t)b[(k + x) * p->rs + j * p->cs] << (8 * x);
        out[j] = word;
      }
  }
}

const volta_matmul_code volta_bf16_amx = {
    .kind = VOLTA_CODE_BF16,
    .isa = VOLTA_ISA_AMX,
    .needs = VOLTA_NEEDS_AMX,
    .width = TILE,
    .unit = 32,
    .k_bytes_a = 2,
    .k_bytes_b = 2,
    .rows_beyond = SIDE,
    .rate = 16,
    .vectors_limit = 2,
    .rows_limit = {SIDE, SIDE},
    .tiles = &bf16_tile_table[0][0][0],
    .vectors_stride = 1, /* one tile for every number of rows */
    .masked_stride = 2,
    .pack_a = pack_a_amx_bf16,
    .pack_b = pack_b_amx_bf16,
    .begin = amx_begin,
    .end = amx_end,
};

const volta_matmul_code volta_i8_amx = {
    .kind = VOLTA_CODE_I8,
    .isa = VOLTA_ISA_AMX,
    .needs = VOLTA_NEEDS_AMX,
    .width = TILE,
    .unit = 64,
    .k_bytes_a = 1,
    .k_bytes_b = 1,
    .rows_beyond = SIDE,
    .rate = 32,
    .vectors_limit = 2,
    .rows_limit = {SIDE, SIDE},
    .tiles = &i8_tile_table[0][0][0],
    .vectors_stride = 1, /* one tile for every number of rows */
    .masked_stride = 2,
    .pack_a = pack_a_amx_i8,
    .pack_b = pack_b_amx_i8,
    .begin = amx_begin,
    .end = amx_end,
};
#endif
