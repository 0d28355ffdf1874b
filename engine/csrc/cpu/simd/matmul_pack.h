/* Copies of A and B into the order the tiles read them. A copy moves bits, so it cannot change N1.
 *
 * The including file also defines vector_transpose(vector rows[WIDTH]): rows become columns.
 */
#ifndef VOLTA_MATMUL_PACK_H
#define VOLTA_MATMUL_PACK_H

#include <stdint.h>

/* Rows of B fetched ahead of their copy: B usually comes from memory or L3. */
#define PACK_AHEAD 16

/* out[k][j] = b[k * rs + j * cs] for k < depth, j < width; rows of `out` are `nr` apart. What lies
 * between width and nr is not written: masked tiles do not read it. */
static void pack_b_panel(const float *b, int64_t rs, int64_t cs, int64_t depth, int64_t width,
                         int64_t nr, float *restrict out) {
  if (cs == 1) {
    const int64_t whole = width / WIDTH * WIDTH;
    const vector_mask mask = vector_mask_of(width - whole);
    for (int64_t k = 0; k < depth; k++, b += rs, out += nr) {
      int64_t j = 0;
      for (int64_t line = 0; line < width; line += 16)
        __builtin_prefetch(b + PACK_AHEAD * rs + line);
      for (; j < whole; j += WIDTH) vector_store(out + j, vector_load(b + j));
      if (j < width) vector_store_masked(out + j, vector_load_masked(b + j, mask), mask);
    }
  } else if (rs == 1) { /* B is a transposed view: WIDTH x WIDTH blocks turned in registers */
    for (int64_t j = 0; j < width; j += WIDTH) {
      const int64_t lines = width - j < WIDTH ? width - j : WIDTH;
      const float *line = b + j * cs;
      int64_t k = 0;
      vector block[WIDTH];
      if (lines == WIDTH) {
        for (; k + WIDTH <= depth; k += WIDTH) {
#pragma GCC unroll 16
          for (int x = 0; x < WIDTH; x++) block[x] = vector_load(line + x * cs + k);
          vector_transpose(block);
#pragma GCC unroll 16
          for (int x = 0; x < WIDTH; x++) vector_store(out + (k + x) * nr + j, block[x]);
        }
      }
      for (; k < depth; k++)
        for (int64_t x = 0; x < lines; x++) out[k * nr + j + x] = line[x * cs + k];
    }
  } else {
    for (int64_t k = 0; k < depth; k++)
      for (int64_t j = 0; j < width; j++) out[k * nr + j] = b[k * rs + j * cs];
  }
}

/* A sliver of `rows` <= WIDTH rows of A. Rows of unit stride are copied as rows, `pitch` apart;
 * otherwise out[k][i], `rows` apart. Sets the strides with which a tile reads the copy. */
static void pack_a_sliver(const float *a, int64_t rs, int64_t cs, int64_t rows, int64_t depth,
                          int64_t pitch, float *restrict out, int64_t *out_rs, int64_t *out_cs) {
  if (cs == 1) {
    *out_rs = pitch, *out_cs = 1;
    const int64_t whole = depth / WIDTH * WIDTH;
    const vector_mask mask = vector_mask_of(depth - whole);
    for (int64_t i = 0; i < rows; i++, a += rs, out += pitch) {
      int64_t k = 0;
      for (int64_t line = 0; line < depth; line += 16) __builtin_prefetch(a + 2 * rs + line);
      for (; k < whole; k += WIDTH) vector_store(out + k, vector_load(a + k));
      if (k < depth) vector_store_masked(out + k, vector_load_masked(a + k, mask), mask);
    }
  } else {
    *out_rs = 1, *out_cs = rows;
    if (rs == 1) {
      const vector_mask mask = vector_mask_of(rows);
      for (int64_t k = 0; k < depth; k++, a += cs, out += rows)
        vector_store_masked(out, vector_load_masked(a, mask), mask);
    } else {
      for (int64_t k = 0; k < depth; k++, a += cs, out += rows)
        for (int64_t i = 0; i < rows; i++) out[i] = a[i * rs];
    }
  }
}

#endif
