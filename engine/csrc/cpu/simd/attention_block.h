/* What attention and its gradient share: a block of query rows, its scores and contractions over
 * keys.
 *
 * A *block* is up to 64 query rows that read the same key head. Its scores live in the thread's
 * workspace, [rows, keys]; K (and V, for the gradient) is transposed there into panels of
 * ATTENTION_PANEL keys, [D, keys], once per key head. Work grows with the visible keys only. */
#ifndef VOLTA_SIMD_ATTENTION_BLOCK_H
#define VOLTA_SIMD_ATTENTION_BLOCK_H

#include "../attention.h"
#include "attention_tile.h"

#define ATTENTION_BLOCK_ROWS (64 / ATTENTION_ROWS * ATTENTION_ROWS)
#define ATTENTION_BLOCK_SCORES (1 << 16) /* floats of one block's scores: a quarter of a 1 MiB L2 */
#define ATTENTION_COLUMNS 64 /* columns of V in one such pass */
#define ATTENTION_KEYS 128 /* keys whose V rows stay in the L1 cache while a block uses them */

static inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* --- workspace -------------------------------------------------------------------------------- */
/* Sizes in floats. All are multiples of 16, so every part is aligned, and the distances between
 * rows are odd multiples of 64 bytes: rows then spread over the sets of the L1 cache. */
typedef struct {
  int64_t rows; /* of a block, at most */
  int64_t score_row; /* distance between rows of scores: S in whole blocks of N2, and more */
  int64_t copy_row; /* distance between copied rows of D */
  int64_t panel; /* one panel */
  int64_t panels; /* kept per key head: all of them, or 1 where no second block would read them */
  int64_t copies; /* copied rows of keys: all, or 0 where too few queries would read them */
} attention_sizes;

static attention_sizes attention_sizes_of(const volta_attention_shape *shape, int gradient) {
  attention_sizes sizes;
  sizes.score_row = round_up(shape->S, 64) + 16;
  sizes.copy_row = round_up(shape->D, 32) + 16;
  const int64_t fitting =
      ATTENTION_BLOCK_SCORES / sizes.score_row / ATTENTION_ROWS * ATTENTION_ROWS;
  sizes.rows = smaller(larger(fitting, ATTENTION_ROWS), ATTENTION_BLOCK_ROWS);
  sizes.panel = ATTENTION_PANEL * shape->D;
  const int one_block = gradient ? shape->group <= 1 && shape->T <= sizes.rows
                                 : shape->group * shape->T <= sizes.rows;
  sizes.panels = one_block ? 1 : round_up(shape->S, ATTENTION_PANEL) / ATTENTION_PANEL;
  sizes.copies = shape->group * shape->T > 2 * ATTENTION_ROWS ? shape->S : 0;
  return sizes;
}

/* Per thread: panels of K, copies of V, copied rows of q, scores. The gradient: panels of K and V,
 * copies of K, copied rows of q and g, scores and their gradients. */
static int64_t attention_bytes(const attention_sizes *sizes, int gradient) {
  const int64_t once = sizes->copies * sizes->copy_row;
  const int64_t twice =
      sizes->panels * sizes->panel + sizes->rows * (sizes->copy_row + sizes->score_row);
  return volta_align((once + (gradient ? 2 : 1) * twice) * (int64_t)sizeof(float));
}

/* --- rows ------------------------------------------------------------------------------------- */
/* Writes whole N2 blocks. */
static inline void copy_row(float *to, const float *from, int64_t D) {
  for (int64_t d = 0; d < D; d += VOLTA_LANES)
    block_store(to + d, block_load(from + d, D - d, 0.0f), VOLTA_LANES);
}

/* Asks for a row before its time: rows of a view of a larger tensor lie in pages of their own,
 * where the processor does not look ahead. */
#define ATTENTION_AHEAD 8
static inline void prefetch_row(const float *x, int64_t D) {
  for (int64_t d = 0; d < D; d += 16) __builtin_prefetch(x + d);
}

static inline void zero_row(float *x, int64_t D) {
  for (int64_t d = 0; d < D; d += VOLTA_LANES) block_store(x + d, block_set(0.0f), D - d);
}

/* --- K or V of one key head, packed or copied when a block first asks ------------------------- */
typedef struct {
  const float *x; /* row 0 */
  int64_t x_row, rows, D;
  float *panels; /* NULL: not used */
  int64_t panel, slots;
  int64_t first, last; /* these panels are packed */
  float *copies; /* NULL: not used */
  int64_t copy_row, copied;
} key_store;

static void keys_begin(key_store *store, const float *x, int64_t x_row, int64_t rows) {
  if (store->x == x && store->rows == rows) return;
  store->x = x;
  store->x_row = x_row;
  store->rows = rows;
  store->first = store->last = store->copied = 0;
}

static const float *keys_panel(key_store *store, int64_t panel) {
  float *at = store->panels + (store->slots > 1 ? panel * store->panel : 0);
  if (panel >= store->first && panel < store->last) return at;
  if (panel != store->last || store->slots == 1) store->first = panel;
  store->last = panel + 1;
  const int64_t key = panel * ATTENTION_PANEL;
  panel_pack(at, store->x + key * store->x_row, store->x_row,
             smaller(store->rows - key, ATTENTION_PANEL), store->D);
  return at;
}

/* Rows 0 .. last, *row apart. A copy is worth its price: rows of a view of a larger tensor lie far
 * apart, so they share few sets of the L1 cache, and each in a page of its own. */
static const float *keys_rows(key_store *store, int64_t last, int64_t *row) {
  *row = store->copies == NULL ? store->x_row : store->copy_row;
  if (store->copies == NULL) return store->x;
  for (; store->copied < last; store->copied++) {
    const float *x = store->x + store->copied * store->x_row;
    prefetch_row(x + ATTENTION_AHEAD * store->x_row, store->D);
    copy_row(store->copies + store->copied * store->copy_row, x, store->D);
  }
  return store->copies;
}

/* --- one block -------------------------------------------------------------------------------- */
typedef struct {
  const volta_call *call;
  volta_attention_shape shape;
  attention_sizes sizes;
  key_store k, v;
  float *q, *g; /* copied rows */
  float *p, *ds; /* scores, then probabilities; gradients of the scores */
  int64_t rows; /* of this block */
  int64_t seen[ATTENTION_BLOCK_ROWS]; /* keys that a row sees; not decreasing */
  float *out[ATTENTION_BLOCK_ROWS]; /* the row of o or dq */
} attention_block;

static attention_block attention_begin(const volta_call *call, const volta_attention_shape *shape,
                                       int gradient) {
  attention_block block = {
      .call = call, .shape = *shape, .sizes = attention_sizes_of(shape, gradient)};
  const attention_sizes *sizes = &block.sizes;
  float *at = (float *)(call->workspace + call->thread * attention_bytes(sizes, gradient));
  const key_store empty = {
      .D = shape->D, .panel = sizes->panel, .slots = sizes->panels, .copy_row = sizes->copy_row};
  block.k = block.v = empty;
  float *copies = at;
  at += sizes->copies * sizes->copy_row;
  if (sizes->copies > 0 && gradient) block.k.copies = copies;
  if (sizes->copies > 0 && !gradient) block.v.copies = copies;
  block.k.panels = at;
  block.q = block.k.panels + sizes->panels * sizes->panel;
  block.p = block.q + sizes->rows * sizes->copy_row;
  if (gradient) {
    block.v.panels = block.p + sizes->rows * sizes->score_row;
    block.g = block.v.panels + sizes->panels * sizes->panel;
    block.ds = block.g + sizes->rows * sizes->copy_row;
  }
  return block;
}

/* out[r][j] = N1(a_r, x_j) * scale, for the keys from panel `first` on that row r sees, and for
 * a few more up to whole vectors; key j of panel `first` is column j - first * ATTENTION_PANEL. */
static void block_scores(attention_block *block, key_store *x, const float *a, float scale,
                         int64_t first, int64_t last, float *out) {
  const int64_t a_row = block->sizes.copy_row, out_row = block->sizes.score_row;
  const int64_t end = smaller(block->seen[block->rows - 1], last * ATTENTION_PANEL);
  for (int64_t panel = first; panel * ATTENTION_PANEL < end; panel++) {
    const int64_t key = panel * ATTENTION_PANEL;
    const float *packed = keys_panel(x, panel);
    for (int64_t r = 0; r < block->rows; r += ATTENTION_ROWS) {
      const int64_t m = smaller(block->rows - r, ATTENTION_ROWS);
      const int64_t columns =
          round_up(smaller(block->seen[r + m - 1] - key, ATTENTION_PANEL), VOLTA_WIDTH);
      float *to = out + r * out_row + key - first * ATTENTION_PANEL;
      for (int64_t c = 0, nv; c < columns; c += nv * VOLTA_WIDTH) {
        nv = tile_vectors(m, columns - c);
        score_tiles[m][nv](block->shape.D, a + r * a_row, a_row, packed + c, scale, to + c,
                           out_row);
      }
    }
  }
}

/* block->out[r] = N1 over visible keys j (a[r][j], x_j). */
static void block_keys(const attention_block *block, const float *a, key_store *store) {
  const int64_t D = block->shape.D, a_row = block->sizes.score_row,
                seen = block->seen[block->rows - 1];
  int64_t x_row;
  const float *x = keys_rows(store, seen, &x_row);
  int64_t key = 0;
  do {
    for (int64_t d = 0; d < D; d += ATTENTION_COLUMNS)
      for (int64_t r = 0; r < block->rows; r += ATTENTION_ROWS) {
        const int64_t m = smaller(block->rows - r, ATTENTION_ROWS),
                      end = smaller(D, d + ATTENTION_COLUMNS);
        for (int64_t c = d, nv; c < end; c += nv * VOLTA_WIDTH) {
          nv = tile_vectors(m, end - c);
          keys_tiles[m][nv](mask_first(end - c), key, key + ATTENTION_KEYS, block->seen + r,
                            a + r * a_row + key, a_row, x + key * x_row + c, x_row, block->out + r,
                            c);
        }
      }
    key += ATTENTION_KEYS;
  } while (key < seen);
}

/* --- shares of causal work -------------------------------------------------------------------- */
/* Units come in one order on every thread; a unit belongs to the thread that holds the middle of
 * its cost on the line of all costs. */
typedef struct {
  int64_t before, total;
} cost_line;

static int cost_mine(cost_line *line, int64_t cost, const volta_call *call) {
  const int64_t middle = line->before + cost / 2;
  line->before += cost;
  return line->total > 0 && middle * call->threads / line->total == call->thread;
}

/* Rows first .. last of a key head (query t of group member u is row t * group + u) and what
 * they see. */
static int64_t rows_cost(const volta_attention_shape *shape, int64_t position, int64_t group,
                         int64_t first, int64_t last) {
  return (last - first) * (2 + volta_visible(shape, position, first / group) +
                           volta_visible(shape, position, (last - 1) / group));
}

#endif
