/* How one matmul step is cut up: for the threads, for the caches, and what it needs as workspace.
 * A pure function of shapes, strides, threads and block sizes; the result never depends on it. */
#ifndef VOLTA_MATMUL_PLAN_H
#define VOLTA_MATMUL_PLAN_H

#include "../matmul_problem.h"

/* mr x nr: the register tile. mc x kc: the block of A that stays in L2 while panels of B, kc x nr,
 * pass over it from L1. kc x nc: the block of B that is packed at a time and stays in L3.
 * few: from how many tiles of rows B is worth packing; wide: from how many panels of columns rows
 * of A are worth copying. */
typedef struct {
  int32_t mr, nr, kc, mc, nc, few, wide;
} volta_matmul_blocks;

#define CHUNK_LIMIT 64
/* Elements of a B that is read in place however many rows pass over it. */
#define B_STAYS 400000

typedef struct {
  volta_matmul_problem p;
  int64_t row_tiles;      /* per matrix; all of a matrix's tiles differ by at most one row */
  int64_t panels;         /* of nr columns; the last may be narrower */
  int64_t k_blocks, k_step;
  int64_t column_blocks;  /* per thread column group */
  int64_t chunk;          /* tiles of rows in a block of A */
  int32_t few_rows; /* B is streamed, not tiled */
  int32_t pack_b, copy_a;
  int32_t batch_groups, row_groups, column_groups; /* the grid of threads */
  int32_t buffers; /* of packed B: 2 when a group packs the next while others use this one */
  int64_t pitch; /* floats between the rows of a copied sliver */
  int64_t buffer_floats, sliver_floats, tile_floats;
} matmul_plan;

static int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t b) { return ceil_divide(a, b) * b; }
static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }

/* What the grid of threads is chosen by, in units of one fma of one element (about 1/75 ns). */
#define PACK_COST 12.0
#define COPY_COST 4.0
#define BARRIER_COST 150000.0

static double grid_cost(const matmul_plan *w, const volta_matmul_blocks *blocks, int64_t nc,
                        int64_t batches, int64_t rows, int64_t columns) {
  const volta_matmul_problem *p = &w->p;
  const double tile_rows = (double)p->m / (double)w->row_tiles;
  const double share_rows = (double)ceil_divide(w->row_tiles * p->inner, rows) * tile_rows;
  const double share_columns = (double)at_most(ceil_divide(w->panels, columns) * blocks->nr, p->n);
  double cost = share_rows * share_columns;
  if (w->pack_b) cost += PACK_COST * share_columns / (double)rows;
  if (w->copy_a) cost += COPY_COST * share_rows * (double)ceil_divide((int64_t)share_columns, nc);
  cost *= (double)p->k;
  if (w->pack_b && rows > 1)
    cost += BARRIER_COST * (double)(w->k_blocks * ceil_divide((int64_t)share_columns, nc));
  return cost * (double)ceil_divide(p->outer, batches);
}

static void choose_grid(matmul_plan *w, const volta_matmul_blocks *blocks, int64_t nc,
                        int threads) {
  double best = -1.0;
  for (int32_t batches = (int32_t)at_most(threads, w->p.outer); batches >= 1; batches--)
    for (int32_t columns = (int32_t)at_most(threads / batches, w->panels); columns >= 1;
         columns--) {
      const int32_t rows = (int32_t)at_most(threads / batches / columns, w->row_tiles * w->p.inner);
      const double cost = grid_cost(w, blocks, nc, batches, rows, columns);
      if (best >= 0.0 && cost >= best) continue;
      best = cost;
      w->batch_groups = batches, w->row_groups = rows, w->column_groups = columns;
    }
}

/* Steps of 2 KiB and its multiples fall into a few sets of L1 and L2. */
static int collides(int64_t stride) {
  return stride != 0 && stride * (int64_t)sizeof(float) % 2048 == 0;
}

/* Packing B costs as much as some tiles of rows. It must be done where rows of B are not vectors,
 * and pays off where they split cache lines, where they collide in cache and are more than a cache
 * holds of one set, or where B as a whole leaves L2. */
static int packs_b(const matmul_plan *w, const volta_matmul_blocks *blocks) {
  const volta_matmul_problem *p = &w->p;
  const int64_t uses = w->row_tiles * p->inner;
  if (p->b_cs != 1) return 1;
  if (p->b_rs % 16 != 0) return uses >= blocks->few;
  if (collides(p->b_rs) && p->k > 128) return uses >= 4 * blocks->few;
  return p->k * p->n > B_STAYS && uses >= 8 * blocks->few;
}

/* A is read in place unless its strides make that slow and panels enough pay for a copy. */
static int copies_a(const matmul_plan *w, const volta_matmul_blocks *blocks) {
  const volta_matmul_problem *p = &w->p;
  return p->a_cs != 1 || (collides(p->a_rs) && w->panels >= blocks->wide);
}

/* Up to 4 rows always; more where B comes from memory, which a tile of few rows would wait for. */
static int streams_b(const volta_matmul_problem *p, int64_t few_rows) {
  if (p->k == 0) return 0;
  if (p->b_cs != 1) return p->b_rs == 1 && p->m <= 4;
  return p->m <= 4 || (p->m <= few_rows && p->k * p->n > B_STAYS);
}

static matmul_plan plan_matmul(const volta_step *step, const volta_operand *operand, int threads,
                               const volta_matmul_blocks *blocks, int64_t few_rows) {
  matmul_plan w = {.p = volta_matmul_read(step, operand)};
  const volta_matmul_problem *p = &w.p;
  w.tile_floats = volta_matmul_tiles(step, operand) * VOLTA_TILE;
  w.batch_groups = w.row_groups = w.column_groups = w.buffers = 1;
  if (p->m == 0 || p->n == 0 || p->outer * p->inner == 0) return w;
  w.few_rows = streams_b(p, few_rows);
  w.row_tiles = w.few_rows ? 1 : ceil_divide(p->m, blocks->mr);
  w.panels = ceil_divide(p->n, blocks->nr);
  w.k_blocks = at_least(1, ceil_divide(p->k, blocks->kc));
  w.k_step = round_up(ceil_divide(p->k, w.k_blocks), 8);
  w.k_blocks = at_least(1, p->k > 0 ? ceil_divide(p->k, w.k_step) : 1);
  if (!w.few_rows && p->k > 0) {
    w.pack_b = packs_b(&w, blocks);
    w.copy_a = copies_a(&w, blocks);
  }
  /* rows of one tile use a panel of B once: keep the copy small enough for L1 */
  const int64_t nc = w.row_tiles * p->inner <= 2 ? blocks->nr : blocks->nc;
  choose_grid(&w, blocks, nc, threads);
  const int64_t group_panels = ceil_divide(w.panels, w.column_groups);
  w.column_blocks = ceil_divide(group_panels * blocks->nr, nc);
  const int64_t block_panels = ceil_divide(group_panels, w.column_blocks);
  const int64_t depth = at_most(w.k_step, p->k);
  if (w.pack_b) {
    w.buffer_floats = round_up(block_panels * blocks->nr * depth, 16);
    if (w.row_groups > 1) w.buffers = 2;
  }
  w.chunk = at_least(1, at_most(at_most(blocks->mc / blocks->mr, CHUNK_LIMIT),
                                ceil_divide(w.row_tiles * p->inner, w.row_groups)));
  if (w.copy_a) {
    w.pitch = round_up(depth, 16) + 16; /* rows must not share a cache set */
    w.sliver_floats = blocks->mr * w.pitch;
  }
  return w;
}

static int64_t plan_bytes(const matmul_plan *w, int threads) {
  const int64_t groups = (int64_t)w->batch_groups * w->column_groups;
  const int64_t shared = groups * w->buffers * w->buffer_floats;
  const int64_t own = round_up(w->chunk * w->sliver_floats, 16) + round_up(w->tile_floats, 16);
  return volta_align((shared + own * threads) * (int64_t)sizeof(float));
}

#endif
