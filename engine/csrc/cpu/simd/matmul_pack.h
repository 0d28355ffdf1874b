/* Copies of A and B into the order the tiles of N1 read them. A copy moves bits and widens (exactly),
 * so it cannot change a result. */
#ifndef VOLTA_MATMUL_PACK_H
#define VOLTA_MATMUL_PACK_H

#include "../matmul_tile.h"
#include "matmul_vector.h"

/* Rows of B fetched ahead of their copy: B usually comes from memory or L3. */
#define PACK_AHEAD 16

/* out[k][j] = b[k * rs + j * cs] for k < depth, j < width; rows of `out` are `nr` apart. What lies
 * between width and nr is not written: masked tiles do not read it. */
static inline __attribute__((always_inline)) void pack_b_as(const volta_pack_b *p,
                                                            const int32_t dtype) {
  const int64_t size = bytes_of(dtype), depth = p->depth, width = p->width;
  const char *b = p->b;
  float *out = p->out;
  if (p->cs == 1) {
    const int64_t whole = width / WIDTH * WIDTH;
    const vector_mask mask = vector_mask_of(width - whole);
    for (int64_t k = 0; k < depth; k++, b += p->rs * size, out += p->nr) {
      int64_t j = 0;
      for (int64_t line = 0; line < width * size; line += 64)
        __builtin_prefetch(b + PACK_AHEAD * p->rs * size + line);
      for (; j < whole; j += WIDTH) vector_store(out + j, vector_widen(b + j * size, dtype));
      if (j < width) {
        const vector last = dtype == VOLTA_F32 ? vector_load_masked((const float *)b + j, mask)
                                               : vector_widen_first(b + j * size, dtype, width - j);
        vector_store_masked(out + j, last, mask);
      }
    }
  } else if (p->rs == 1) { /* B is a transposed view: WIDTH x WIDTH blocks turned in registers */
    for (int64_t j = 0; j < width; j += WIDTH) {
      const int64_t lines = width - j < WIDTH ? width - j : WIDTH;
      const char *line = b + j * p->cs * size;
      int64_t k = 0;
      vector block[WIDTH];
      if (lines == WIDTH) {
        for (; k + WIDTH <= depth; k += WIDTH) {
#pragma GCC unroll 16
          for (int x = 0; x < WIDTH; x++)
            block[x] = vector_widen(line + (x * p->cs + k) * size, dtype);
          vector_transpose(block);
#pragma GCC unroll 16
          for (int x = 0; x < WIDTH; x++) vector_store(out + (k + x) * p->nr + j, block[x]);
        }
      }
      for (; k < depth; k++)
        for (int64_t x = 0; x < lines; x++)
          out[k * p->nr + j + x] = widen(line + (x * p->cs + k) * size, dtype);
    }
  } else {
    for (int64_t k = 0; k < depth; k++)
      for (int64_t j = 0; j < width; j++)
        out[k * p->nr + j] = widen(b + (k * p->rs + j * p->cs) * size, dtype);
  }
}

static void pack_b_f32(const volta_pack_b *p) {
  if (p->dtype == VOLTA_F32) pack_b_as(p, VOLTA_F32);
  if (p->dtype == VOLTA_BF16) pack_b_as(p, VOLTA_BF16);
  if (p->dtype == VOLTA_I8) pack_b_as(p, VOLTA_I8);
}

/* Rows of unit stride are copied as rows, `pitch` apart. Columns of unit stride become, tile by tile,
 * out[k][i]: one walk over k serves all tiles, since its lines lie far apart and are read once. */
static void pack_a_f32(volta_pack_a *p) {
  const float *a = p->a;
  float *restrict out = p->out;
  const int64_t rows = p->first[p->tiles], depth = p->depth;
  if (p->cs == 1) {
    p->out_rs = p->pitch, p->out_cs = 1;
    const int64_t whole = depth / WIDTH * WIDTH;
    const vector_mask mask = vector_mask_of(depth - whole);
    for (int64_t i = 0; i < rows; i++, a += p->rs, out += p->pitch) {
      int64_t k = 0;
      for (int64_t line = 0; line < depth; line += 16) __builtin_prefetch(a + 2 * p->rs + line);
      for (; k < whole; k += WIDTH) vector_store(out + k, vector_load(a + k));
      if (k < depth) vector_store_masked(out + k, vector_load_masked(a + k, mask), mask);
    }
    return;
  }
  p->out_rs = 1, p->out_cs = 0;
  for (int64_t k = 0; k < depth; k++, a += p->cs) {
    for (int64_t line = 0; p->rs == 1 && line < rows; line += 16)
      __builtin_prefetch(a + PACK_AHEAD * p->cs + line);
    for (int64_t t = 0; t < p->tiles; t++) {
      const int64_t height = p->first[t + 1] - p->first[t];
      const float *from = a + p->first[t] * p->rs;
      float *to = out + p->first[t] * p->pitch + k * height;
      if (p->rs != 1) {
        for (int64_t i = 0; i < height; i++) to[i] = from[i * p->rs];
        continue;
      }
      for (int64_t i = 0; i < height; i += WIDTH) {
        const vector_mask mask = vector_mask_of(height - i < WIDTH ? height - i : WIDTH);
        vector_store_masked(to + i, vector_load_masked(from + i, mask), mask);
      }
    }
  }
}

#endif
