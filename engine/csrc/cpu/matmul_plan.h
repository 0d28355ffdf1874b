/* How one matmul step is cut up: for the threads, for the caches, and what it needs as workspace.
 * A pure function of shapes, strides, threads and block sizes; the result never depends on it. */
#ifndef VOLTA_MATMUL_PLAN_H
#define VOLTA_MATMUL_PLAN_H

#include "matmul_problem.h"
#include "matmul_tiles.h"

/* Bytes of a B that is read in place however many rows pass over it. */
#define B_STAYS 1600000
/* From how many tiles of rows B is worth packing; from how many panels of columns rows of A are worth
 * copying. */
#define FEW_TILES 3
#define MANY_PANELS 32

typedef struct {
  volta_matmul_problem p;
  const volta_matmul_code *code;
  int64_t mr, nr, kc, mc, nc, ahead;
  int64_t row_tiles;      /* per matrix; all of a matrix's tiles differ by at most one row */
  int64_t panels;         /* of nr columns; the last may be narrower */
  int64_t k_blocks, k_step;
  int64_t column_blocks;  /* per thread column group */
  int64_t chunk;          /* tiles of rows in a block of A */
  int32_t few_rows; /* B is streamed, not tiled */
  int32_t pack_b, copy_a;
  int32_t b_is_packed; /* by the pack kernel, all of k */
  int32_t threads; /* that take part */
  int32_t batch_groups, row_groups, column_groups; /* the grid of threads */
  int32_t buffers; /* of packed B: 2 when a group packs the next while others use this one */
  int64_t pitch; /* words between the rows of a copy of A: whole lines */
  int64_t buffer_bytes, sliver_bytes, tile_bytes;
} matmul_plan;

static int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t b) { return ceil_divide(a, b) * b; }
static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }

/* k are padded within segments: blocks of N9, groups of N10. */
static int64_t segment_of(const volta_matmul_code *code, int64_t group) {
  return code->kind == VOLTA_CODE_BF16 ? 32 : code->kind == VOLTA_CODE_I8 ? group : 1;
}

/* Bytes of `depth` packed elements of one column of B, and of one row of A. */
static int64_t column_bytes(const volta_matmul_code *code, int64_t group, int64_t depth) {
  const int64_t segment = at_least(1, segment_of(code, group));
  return ceil_divide(depth, segment) * round_up(segment, code->unit) * code->k_bytes_b;
}

static int64_t row_bytes(const volta_matmul_code *code, int64_t group, int64_t depth) {
  const int64_t segment = at_least(1, segment_of(code, group));
  return ceil_divide(depth, segment) *
         (round_up(segment, code->unit) * code->k_bytes_a + code->extra);
}

/* What the grid of threads is chosen by, in units of one fma of one element (about 1/75 ns). */
#define PACK_COST 12.0
#define COPY_COST 4.0
#define BARRIER_COST 150000.0

static double grid_cost(const matmul_plan *w, int64_t nc, int64_t batches, int64_t rows,
                        int64_t columns) {
  const volta_matmul_problem *p = &w->p;
  const double rate = (double)w->code->rate;
  const double tile_rows = (double)p->m / (double)w->row_tiles;
  const double share_rows = (double)ceil_divide(w->row_tiles * p->inner, rows) * tile_rows;
  const double share_columns = (double)at_most(ceil_divide(w->panels, columns) * w->nr, p->n);
  double cost = share_rows * share_columns;
  if (w->pack_b) cost += PACK_COST * rate * share_columns / (double)rows;
  if (w->copy_a)
    cost += COPY_COST * rate * share_rows * (double)ceil_divide((int64_t)share_columns, nc);
  cost *= (double)p->k;
  if (w->pack_b && rows > 1)
    cost += BARRIER_COST * rate * (double)(w->k_blocks * ceil_divide((int64_t)share_columns, nc));
  return cost * (double)ceil_divide(p->outer, batches);
}

static void choose_grid(matmul_plan *w, int64_t nc) {
  double best = -1.0;
  const int64_t threads = w->threads;
  for (int32_t batches = (int32_t)at_most(threads, w->p.outer); batches >= 1; batches--)
    for (int32_t columns = (int32_t)at_most(threads / batches, w->panels); columns >= 1;
         columns--) {
      const int32_t rows = (int32_t)at_most(threads / batches / columns, w->row_tiles * w->p.inner);
      const double cost = grid_cost(w, nc, batches, rows, columns);
      if (best >= 0.0 && cost >= best) continue;
      best = cost;
      w->batch_groups = batches, w->row_groups = rows, w->column_groups = columns;
    }
}

/* Steps of 2 KiB and its multiples fall into a few sets of L1 and L2. */
static int collides(int64_t stride) {
  return stride != 0 && stride * (int64_t)sizeof(float) % 2048 == 0;
}

/* Packing B costs as much as some tiles of rows. It must be done where rows of B are not vectors of
 * f32, and pays off where they split cache lines, where they collide in cache and are more than a
 * cache holds of one set, or where B as a whole leaves L2. */
static int packs_b(const matmul_plan *w, int32_t b_dtype, int32_t wanted) {
  const volta_matmul_problem *p = &w->p;
  const int64_t uses = w->row_tiles * p->inner;
  if (p->b_cs != 1 || b_dtype != VOLTA_F32 || w->code->kind != VOLTA_CODE_F32) return 1;
  if (wanted != 0) return wanted == VOLTA_COPY_B_ALWAYS;
  if (p->b_rs % 16 != 0) return uses >= FEW_TILES;
  if (collides(p->b_rs) && p->k > 128) return uses >= 4 * FEW_TILES;
  return p->k * p->n * 4 > B_STAYS && uses >= 16 * FEW_TILES;
}

/* A is read in place where a tile's elements of one k lie in one or two lines, or each of its rows is
 * contiguous: unless those rows collide in cache and panels enough pay for a copy. */
static int copies_a(const matmul_plan *w, int32_t wanted) {
  const volta_matmul_problem *p = &w->p;
  if (w->code->kind != VOLTA_CODE_F32) return 1;
  if (wanted != 0) return wanted == VOLTA_COPY_A_ALWAYS;
  if (p->a_rs == 1) return 0;
  return p->a_cs != 1 || (collides(p->a_rs) && w->panels >= MANY_PANELS);
}

/* Up to 4 rows always; more where B comes from memory, which a tile of few rows would wait for. */
static int streams_b(const volta_matmul_problem *p, int32_t b_dtype, int32_t isa) {
  const volta_matmul_code *code = volta_matmul_streams(p->kind, isa);
  if (p->k == 0 || code == NULL) return 0;
  if (p->b_cs != 1)
    return p->b_rs == 1 && code->few_turned[b_dtype] != NULL && p->m <= code->few_turned_rows;
  if (code->few[b_dtype] == NULL) return 0;
  return p->m <= at_most(4, code->few_rows) ||
         (p->m <= code->few_rows && p->k * p->n * volta_itemsize(b_dtype) > B_STAYS);
}

/* Whole segments, and N1 in steps of 8. */
static void choose_k_blocks(matmul_plan *w) {
  const volta_matmul_problem *p = &w->p;
  const int64_t segment = at_least(1, segment_of(w->code, p->group));
  const int64_t scaled = p->scale >= 0 ? at_least(1, p->group) : 1;
  const int64_t step = at_least(at_least(segment, scaled), 8);
  w->k_blocks = at_least(1, ceil_divide(p->k, at_least(w->kc, step)));
  w->k_step = ceil_divide(p->k, w->k_blocks);
  w->k_step = at_least(scaled > 1 ? round_up(w->k_step, scaled) : round_up(w->k_step, step), 1);
  w->k_blocks = at_least(1, ceil_divide(p->k, w->k_step));
}

static int64_t setting(const volta_step *step, int which, int64_t otherwise) {
  return step->ints[which] > 0 ? step->ints[which] : otherwise;
}

/* The step's own sizes of blocks where it has some. Threads 1 .. */
static int read_settings(matmul_plan *w, const volta_step *step, int32_t isa, int threads) {
  const volta_matmul_family *family =
      volta_matmul_family_of((int32_t)step->ints[VOLTA_MATMUL_TILE], w->p.kind, isa);
  if (family == NULL) return 0;
  w->code = family->code;
  w->mr = family->mr, w->nr = family->nr;
  w->kc = setting(step, VOLTA_MATMUL_KC, family->kc);
  w->mc = setting(step, VOLTA_MATMUL_MC, family->mc);
  w->nc = setting(step, VOLTA_MATMUL_NC, family->nc);
  w->ahead = setting(step, VOLTA_MATMUL_AHEAD, family->ahead + 1) - 1;
  w->threads = (int32_t)at_most(threads, setting(step, VOLTA_MATMUL_THREADS, threads));
  w->b_is_packed = volta_matmul_b_is_packed(step);
  return 1;
}

/* 0 where no tile runs this step here. */
static int plan_matmul(matmul_plan *w, const volta_step *step, const volta_operand *operand,
                       int32_t isa, int threads) {
  *w = (matmul_plan){.p = volta_matmul_read(step, operand)};
  const volta_matmul_problem *p = &w->p;
  if (!read_settings(w, step, isa, threads)) return 0;
  w->tile_bytes = volta_matmul_tiles(step, operand) * VOLTA_TILE * (int64_t)sizeof(float);
  w->batch_groups = w->row_groups = w->column_groups = w->buffers = 1;
  if (p->m == 0 || p->n == 0 || p->outer * p->inner == 0) return 1;
  const int32_t b_dtype = operand[p->b].dtype;
  const int64_t copies = step->ints[VOLTA_MATMUL_COPIES];
  w->few_rows = !w->b_is_packed && copies == 0 && streams_b(p, b_dtype, isa);
  w->row_tiles = w->few_rows ? 1 : ceil_divide(p->m, w->mr);
  w->panels = ceil_divide(p->n, w->nr);
  choose_k_blocks(w);
  if (!w->few_rows && p->k > 0) {
    w->pack_b = !w->b_is_packed && packs_b(w, b_dtype, (int32_t)copies & 3);
    w->copy_a = copies_a(w, (int32_t)copies & 12);
  }
  /* rows of one tile use a panel of B once: keep the copy small enough for L1 */
  const int64_t nc = w->row_tiles * p->inner <= 2 ? w->nr : w->nc;
  choose_grid(w, nc);
  const int64_t group_panels = ceil_divide(w->panels, w->column_groups);
  w->column_blocks = ceil_divide(group_panels * w->nr, nc);
  const int64_t block_panels = ceil_divide(group_panels, w->column_blocks);
  const int64_t depth = at_most(w->k_step, p->k);
  if (w->pack_b) {
    w->buffer_bytes =
        round_up(block_panels * w->nr * column_bytes(w->code, p->group, depth), VOLTA_ALIGNMENT);
    if (w->row_groups > 1) w->buffers = 2;
  }
  w->chunk = at_least(1, at_most(at_most(w->mc / w->mr, VOLTA_CHUNK_LIMIT),
                                 ceil_divide(w->row_tiles * p->inner, w->row_groups)));
  if (w->copy_a) {
    /* and one line more: rows must not share a cache set */
    w->pitch = round_up(row_bytes(w->code, p->group, depth), 64) / 4 + 16;
    w->sliver_bytes = (w->chunk * w->mr + w->code->rows_beyond) * w->pitch * 4;
  }
  return 1;
}

static int64_t own_bytes(const matmul_plan *w) {
  return w->sliver_bytes + round_up(w->tile_bytes, VOLTA_ALIGNMENT);
}

static int64_t plan_bytes(const matmul_plan *w, int threads) {
  const int64_t groups = (int64_t)w->batch_groups * w->column_groups;
  return groups * w->buffers * w->buffer_bytes + own_bytes(w) * threads;
}

/* Bytes of B [k, n] as the pack kernel makes it: panels over all of k. */
static int64_t packed_bytes(const volta_matmul_family *family, int64_t k, int64_t n,
                            int64_t group) {
  return ceil_divide(n, family->nr) * family->nr * column_bytes(family->code, group, k);
}

#endif
