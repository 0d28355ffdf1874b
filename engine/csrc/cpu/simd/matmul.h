/* The driver of the fast matmul, one text for every vector width.
 *
 *   for each outer batch of this thread's group
 *     for each block of columns (nc wide) of this thread's group
 *       for each K block (kc deep), ascending
 *         pack B[kc, nc] into panels of nr columns (shared by the threads of the group), or not
 *         for each chunk of rows (mc) of this thread
 *           copy A[mc, kc], or not
 *           for each panel, for each tile of rows: C[mr, nr] += A[mr, kc] B[kc, nr] in registers
 *           after the last K block: the epilogue on C[mc, some panels], still in L2
 *
 * Threads form a grid of batch x row x column groups. Every element of C belongs to one thread.
 * Only packing into a buffer that several row groups share needs them to meet.
 */
#ifndef VOLTA_SIMD_MATMUL_H
#define VOLTA_SIMD_MATMUL_H

#include "matmul_few.h"
#include "matmul_pack.h"
#include "matmul_plan.h"
#include "matmul_tile.h"

/* Columns of a chunk that are finished before its epilogue: mc rows by 256 stay in L2. */
#define EPILOGUE_COLUMNS 256

typedef struct {
  const volta_call *call;
  const matmul_plan *plan;
  const volta_matmul_blocks *blocks;
  volta_chain_tile chain;
  int64_t batch_group, row_group, column_group; /* this thread's place in the grid */
  float *packed;  /* this group's buffers of B */
  float *sliver;  /* this thread's copy of a chunk of A */
  float *tiles;   /* this thread's epilogue tiles */
} matmul_thread;

/* One K block of one block of columns. */
typedef struct {
  int64_t outer;
  int64_t panel0, panel1; /* columns, in panels */
  int64_t k0, k1;
  const float *packed;    /* NULL: B in place */
} matmul_block;

static void finish_rows(const matmul_thread *x, int64_t batch, int64_t i0, int64_t i1, int64_t j0,
                        int64_t j1) {
  volta_matmul_epilogue(x->call, &x->plan->p, x->chain, x->tiles, batch, i0, i1, j0, j1);
}

static int64_t panel_width(const matmul_thread *x, int64_t panel) {
  return at_most(x->blocks->nr, x->plan->p.n - panel * x->blocks->nr);
}

/* This thread's share of the panels of B[k0:k1, ...]. */
static void pack_block(const matmul_thread *x, const matmul_block *block, float *packed) {
  const volta_matmul_problem *p = &x->plan->p;
  const int64_t nr = x->blocks->nr, depth = block->k1 - block->k0;
  const float *b = volta_matmul_at(x->call, p, p->b, block->outer * p->inner) + block->k0 * p->b_rs;
  int64_t first, last;
  volta_share(block->panel1 - block->panel0, (int)x->row_group, x->plan->row_groups, &first, &last);
  for (int64_t q = first; q < last; q++) {
    const int64_t panel = block->panel0 + q;
    pack_b_panel(b + panel * nr * p->b_cs, p->b_rs, p->b_cs, depth, panel_width(x, panel), nr,
                 packed + q * nr * depth);
  }
}

/* A tile of rows of one chunk. */
typedef struct {
  int64_t batch, i0, i1;
  tile_call call;
} matmul_rows;

static matmul_rows read_rows(const matmul_thread *x, const matmul_block *block, int64_t tile,
                             float *sliver) {
  const matmul_plan *w = x->plan;
  const volta_matmul_problem *p = &w->p;
  const int64_t part = tile % w->row_tiles, depth = block->k1 - block->k0;
  matmul_rows rows = {.batch = block->outer * p->inner + tile / w->row_tiles};
  rows.i0 = p->m * part / w->row_tiles, rows.i1 = p->m * (part + 1) / w->row_tiles;
  tile_call *t = &rows.call;
  t->a = volta_matmul_at(x->call, p, p->a, rows.batch) + rows.i0 * p->a_rs + block->k0 * p->a_cs;
  t->a_rs = p->a_rs, t->a_cs = p->a_cs;
  t->c = volta_matmul_at(x->call, p, 0, rows.batch) + rows.i0 * p->c_rs;
  t->c_rs = p->c_rs;
  t->k = depth;
  t->resume = block->k0 > 0;
  if (w->copy_a) {
    pack_a_sliver(t->a, p->a_rs, p->a_cs, rows.i1 - rows.i0, depth, w->pitch, sliver, &t->a_rs,
                  &t->a_cs);
    t->a = sliver;
  }
  return rows;
}

/* Panels [q0, q1) of columns for all tiles of rows of a chunk, then their epilogue. */
static void multiply_panels(const matmul_thread *x, const matmul_block *block, matmul_rows *rows,
                            int64_t tiles, int64_t q0, int64_t q1) {
  const volta_matmul_problem *p = &x->plan->p;
  const int64_t nr = x->blocks->nr, depth = block->k1 - block->k0;
  const float *b = volta_matmul_at(x->call, p, p->b, block->outer * p->inner) + block->k0 * p->b_rs;
  for (int64_t panel = q0; panel < q1; panel++) {
    const int64_t width = panel_width(x, panel), vectors = ceil_divide(width, WIDTH);
    const int64_t columns = width - (vectors - 1) * WIDTH;
    const tile_function *run = tile_table[columns < WIDTH][vectors - 1];
    const float *from =
        block->packed ? block->packed + (panel - block->panel0) * nr * depth : b + panel * nr;
    for (int64_t i = 0; i < tiles; i++) {
      tile_call t = rows[i].call;
      t.b = from, t.b_rs = block->packed ? nr : p->b_rs;
      t.c += panel * nr;
      t.columns = columns;
      run[rows[i].i1 - rows[i].i0 - 1](&t);
    }
  }
  if (block->k1 < p->k) return;
  for (int64_t i = 0; i < tiles; i++)
    finish_rows(x, rows[i].batch, rows[i].i0, rows[i].i1, q0 * nr, at_most(q1 * nr, p->n));
}

/* This thread's tiles of rows over one block. */
static void multiply_block(const matmul_thread *x, const matmul_block *block) {
  const matmul_plan *w = x->plan;
  const int64_t group =
      x->call->step->n_instructions ? at_least(1, EPILOGUE_COLUMNS / x->blocks->nr) : w->panels;
  matmul_rows rows[CHUNK_LIMIT];
  int64_t first, last;
  volta_share(w->row_tiles * w->p.inner, (int)x->row_group, w->row_groups, &first, &last);
  for (int64_t tile = first; tile < last; tile += w->chunk) {
    const int64_t tiles = at_most(w->chunk, last - tile);
    for (int64_t i = 0; i < tiles; i++)
      rows[i] = read_rows(x, block, tile + i, x->sliver + i * w->sliver_floats);
    for (int64_t q = block->panel0; q < block->panel1; q += group)
      multiply_panels(x, block, rows, tiles, q, at_most(q + group, block->panel1));
  }
}

/* Tiled: every thread takes the same number of steps, so that all meet at the same barriers; a
 * group with fewer batches than others takes its last steps empty. */
static void multiply_tiled(const matmul_thread *x, int idle) {
  const matmul_plan *w = x->plan;
  const volta_matmul_problem *p = &w->p;
  const int meet = w->pack_b && w->row_groups > 1;
  int64_t outer0, outer1, panel0, panel1, turn = 0;
  volta_share(p->outer, (int)x->batch_group, w->batch_groups, &outer0, &outer1);
  volta_share(w->panels, (int)x->column_group, w->column_groups, &panel0, &panel1);
  const int64_t rounds = ceil_divide(p->outer, w->batch_groups);
  for (int64_t round = 0; round < rounds; round++) {
    matmul_block block = {.outer = outer0 + round};
    const int busy = !idle && block.outer < outer1;
    for (int64_t columns = 0; columns < w->column_blocks; columns++) {
      volta_share(panel1 - panel0, (int)columns, (int)w->column_blocks, &block.panel0,
                  &block.panel1);
      block.panel0 += panel0, block.panel1 += panel0;
      for (int64_t kb = 0; kb < w->k_blocks; kb++, turn++) {
        block.k0 = kb * w->k_step, block.k1 = at_most(p->k, block.k0 + w->k_step);
        if (w->pack_b) {
          /* buffers alternate: whoever packs the next block has seen all threads leave this one's
           * predecessor at the barrier between them */
          float *packed = x->packed + turn % w->buffers * w->buffer_floats;
          if (busy) pack_block(x, &block, packed);
          if (meet) volta_pool_barrier(x->call->pool);
          block.packed = packed;
        }
        if (busy) multiply_block(x, &block);
      }
    }
  }
}

/* Few rows: B streams past; a thread has batches and columns of its own. */
static void multiply_few(const matmul_thread *x) {
  const matmul_plan *w = x->plan;
  const volta_matmul_problem *p = &w->p;
  int64_t outer0, outer1, inner0, inner1, panel0, panel1;
  volta_share(p->outer, (int)x->batch_group, w->batch_groups, &outer0, &outer1);
  volta_share(p->inner, (int)x->row_group, w->row_groups, &inner0, &inner1);
  volta_share(w->panels, (int)x->column_group, w->column_groups, &panel0, &panel1);
  const int64_t j1 = at_most(panel1 * x->blocks->nr, p->n);
  for (int64_t outer = outer0; outer < outer1; outer++)
    for (int64_t batch = outer * p->inner + inner0; batch < outer * p->inner + inner1; batch++) {
      const float *a = volta_matmul_at(x->call, p, p->a, batch);
      const float *b = volta_matmul_at(x->call, p, p->b, batch);
      float *c = volta_matmul_at(x->call, p, 0, batch);
      for (int64_t j = panel0 * x->blocks->nr; j < j1; j += FEW_COLUMNS) {
        const int64_t end = at_most(j + FEW_COLUMNS, j1);
        if (p->b_cs == 1)
          few_table[p->m - 1](a, p->a_rs, p->a_cs, b + j, p->b_rs, c + j, p->c_rs, end - j, p->k);
        else
          few_turned_table[p->m - 1](a, p->a_rs, p->a_cs, b + j * p->b_cs, p->b_cs, c + j, p->c_rs,
                                     end - j, p->k);
        finish_rows(x, batch, 0, p->m, j, end);
      }
    }
}

static int run_matmul(const volta_call *call, const volta_matmul_blocks *blocks,
                      volta_chain_tile chain) {
  if (!volta_matmul_valid(call)) return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);
  const matmul_plan w = plan_matmul(call->step, call->operand, call->threads, blocks, FEW_ROWS);
  if (w.row_tiles == 0) return VOLTA_OK; /* no element */
  const int64_t group = (int64_t)call->thread / w.row_groups;
  matmul_thread x = {.call = call, .plan = &w, .blocks = blocks, .chain = chain};
  x.row_group = call->thread % w.row_groups;
  x.column_group = group % w.column_groups;
  x.batch_group = group / w.column_groups;
  const int idle = x.batch_group >= w.batch_groups;
  const int64_t own = round_up(w.chunk * w.sliver_floats, 16) + round_up(w.tile_floats, 16);
  const int64_t groups = (int64_t)w.batch_groups * w.column_groups;
  float *workspace = (float *)call->workspace;
  x.packed = workspace + group * w.buffers * w.buffer_floats;
  x.sliver = workspace + groups * w.buffers * w.buffer_floats + own * call->thread;
  x.tiles = x.sliver + round_up(w.chunk * w.sliver_floats, 16);
  if (!w.few_rows)
    multiply_tiled(&x, idle);
  else if (!idle)
    multiply_few(&x);
  return VOLTA_OK;
}

#endif
