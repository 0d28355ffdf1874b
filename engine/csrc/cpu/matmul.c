/* The driver of the fast matmuls, one for every element type and instruction set.
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
#include "matmul_plan.h"
#include "x86.h"

#if defined(VOLTA_X86)
#include <xmmintrin.h>
#endif

int64_t volta_matmul_workspace(const volta_step *step, const volta_operand *operand, int isa,
                               int threads);
int volta_matmul(const volta_call *call);
int volta_pack_weights(const volta_call *call);

/* Columns of a chunk that are finished before its epilogue: mc rows by 128 stay in L2. */
#define EPILOGUE_COLUMNS 128
/* Columns of B that a few rows stream at a time: FEW_COLUMNS of simd/matmul_few.h. */
#define STREAM_COLUMNS 1024

typedef struct {
  const volta_call *call;
  const matmul_plan *plan;
  volta_chain_rows chain;
  int64_t batch_group, row_group, column_group; /* this thread's place in the grid */
  char *packed;  /* this group's buffers of B */
  char *sliver;  /* this thread's copy of the rows of A of one chunk */
  float *tiles;  /* this thread's epilogue tiles */
} matmul_thread;

/* One K block of one block of columns. */
typedef struct {
  int64_t outer;
  int64_t panel0, panel1; /* columns, in panels */
  int64_t k0, k1;
  const char *packed;     /* panel0's; NULL: B in place */
  int64_t panel_bytes;    /* from a panel to the next */
} matmul_block;

static void finish_rows(const matmul_thread *x, int64_t batch, int64_t i0, int64_t i1, int64_t j0,
                        int64_t j1) {
  volta_matmul_epilogue(x->call, &x->plan->p, x->chain, x->tiles, batch, i0, i1, j0, j1);
}

static int64_t panel_width(const matmul_thread *x, int64_t panel) {
  return at_most(x->plan->nr, x->plan->p.n - panel * x->plan->nr);
}

static const char *element_of_b(const matmul_thread *x, int64_t outer, int64_t k, int64_t j) {
  const volta_matmul_problem *p = &x->plan->p;
  return volta_matmul_at(x->call, p, p->b, outer * p->inner) +
         (k * p->b_rs + j * p->b_cs) * volta_itemsize(x->call->operand[p->b].dtype);
}

/* This thread's share of the panels of B[k0:k1, ...]. */
static void pack_block(const matmul_thread *x, const matmul_block *block, char *packed) {
  const matmul_plan *w = x->plan;
  const volta_matmul_problem *p = &w->p;
  int64_t first, last;
  volta_share(block->panel1 - block->panel0, (int)x->row_group, w->row_groups, &first, &last);
  for (int64_t q = first; q < last; q++) {
    const int64_t panel = block->panel0 + q;
    const volta_pack_b pack = {.b = element_of_b(x, block->outer, block->k0, panel * w->nr),
                               .dtype = x->call->operand[p->b].dtype,
                               .rs = p->b_rs,
                               .cs = p->b_cs,
                               .depth = block->k1 - block->k0,
                               .width = panel_width(x, panel),
                               .nr = w->nr,
                               .group = p->group,
                               .out = packed + q * block->panel_bytes};
    w->code->pack_b(&pack);
  }
}

/* A tile of rows of one chunk. */
typedef struct {
  int64_t batch, i0, i1;
  volta_tile_call call;
} matmul_rows;

/* The tiles of a chunk, A where it is. */
static void read_rows(const matmul_thread *x, const matmul_block *block, int64_t first,
                      int64_t tiles, matmul_rows *rows) {
  const matmul_plan *w = x->plan;
  const volta_matmul_problem *p = &w->p;
  const int64_t a_size = volta_itemsize(x->call->operand[p->a].dtype);
  for (int64_t i = 0; i < tiles; i++) {
    const int64_t tile = first + i, part = tile % w->row_tiles;
    matmul_rows *r = &rows[i];
    r->batch = block->outer * p->inner + tile / w->row_tiles;
    r->i0 = p->m * part / w->row_tiles, r->i1 = p->m * (part + 1) / w->row_tiles;
    r->call = (volta_tile_call){
        .a = volta_matmul_at(x->call, p, p->a, r->batch) +
             (r->i0 * p->a_rs + block->k0 * p->a_cs) * a_size,
        .c = (float *)volta_matmul_at(x->call, p, 0, r->batch) + r->i0 * p->c_rs,
        .a_rs = p->a_rs,
        .a_cs = p->a_cs,
        .c_rs = p->c_rs,
        .k = block->k1 - block->k0,
        .rows = r->i1 - r->i0,
        .resume = block->k0 > 0,
        .ahead = w->ahead,
        .group = p->group,
        .scale_rs = p->scale_rs,
    };
  }
}

/* Copies A for the tiles of a chunk, those of one batch at a time, which lie one below the other. */
static void copy_rows(const matmul_thread *x, int64_t tiles, matmul_rows *rows) {
  const matmul_plan *w = x->plan;
  int64_t first[VOLTA_CHUNK_LIMIT + 1] = {0};
  char *out = x->sliver;
  for (int64_t begin = 0, end; begin < tiles; begin = end) {
    for (end = begin; end < tiles && rows[end].batch == rows[begin].batch; end++)
      first[end - begin + 1] = rows[end].i1 - rows[begin].i0;
    volta_pack_a pack = {.a = rows[begin].call.a,
                         .rs = w->p.a_rs,
                         .cs = w->p.a_cs,
                         .depth = rows[begin].call.k,
                         .pitch = w->pitch,
                         .group = w->p.group,
                         .tiles = end - begin,
                         .first = first,
                         .out = out};
    w->code->pack_a(&pack);
    for (int64_t i = begin; i < end; i++) {
      volta_tile_call *t = &rows[i].call;
      t->a = out + first[i - begin] * w->pitch * 4;
      t->a_rs = pack.out_rs, t->a_cs = pack.out_cs == 0 ? t->rows : pack.out_cs;
    }
    out += first[end - begin] * w->pitch * 4;
  }
}

/* An empty contraction is +0, whatever the clause. */
static void zero_panels(const matmul_thread *x, const matmul_rows *rows, int64_t tiles, int64_t q0,
                        int64_t q1) {
  const matmul_plan *w = x->plan;
  for (int64_t i = 0; i < tiles; i++)
    for (int64_t r = 0; r < rows[i].call.rows; r++)
      for (int64_t j = q0 * w->nr; j < at_most(q1 * w->nr, w->p.n); j++)
        rows[i].call.c[r * w->p.c_rs + j] = 0.0f;
}

/* Panels [q0, q1) of columns for all tiles of rows of a chunk. */
static void multiply_panels(const matmul_thread *x, const matmul_block *block,
                            const matmul_rows *rows, int64_t tiles, int64_t q0, int64_t q1) {
  const matmul_plan *w = x->plan;
  const volta_matmul_problem *p = &w->p;
  const volta_matmul_code *code = w->code;
  const float *scale = p->scale < 0 ? NULL : (const float *)x->call->data[p->scale];
  if (scale != NULL) scale += block->k0 / at_least(1, p->group) * p->scale_rs;
  for (int64_t panel = q0; panel < q1; panel++) {
    const int64_t width = panel_width(x, panel), vectors = ceil_divide(width, code->width);
    const int64_t columns = width - (vectors - 1) * code->width;
    const volta_tile *run =
        (scale != NULL && code->kind == VOLTA_CODE_F32 ? code->scaled : code->tiles) +
        (columns < code->width) * code->masked_stride + (vectors - 1) * code->vectors_stride;
    const void *from = block->packed ? block->packed + (panel - block->panel0) * block->panel_bytes
                                     : element_of_b(x, block->outer, block->k0, panel * w->nr);
    for (int64_t i = 0; i < tiles; i++) {
      volta_tile_call t = rows[i].call;
      t.b = from, t.b_rs = block->packed ? w->nr : p->b_rs;
      t.c += panel * w->nr;
      t.columns = columns;
      t.scale = scale == NULL ? NULL : scale + panel * w->nr;
      run[(t.rows - 1) * code->rows_stride](&t);
    }
  }
}

/* N9 flushes subnormals; everything around its tiles keeps them (N0). */
static unsigned flush_subnormals(const volta_matmul_code *code) {
#if defined(VOLTA_X86)
  const unsigned before = _mm_getcsr();
  if (code->flushes) _mm_setcsr(before | 0x8040);
  return before;
#else
  (void)code;
  return 0;
#endif
}

static void keep_subnormals(const volta_matmul_code *code, unsigned before) {
#if defined(VOLTA_X86)
  if (code->flushes) _mm_setcsr(before);
#else
  (void)code, (void)before;
#endif
}

/* This thread's tiles of rows over one block. */
static void multiply_block(const matmul_thread *x, const matmul_block *block) {
  const matmul_plan *w = x->plan;
  const int64_t group =
      x->call->step->n_instructions ? at_least(1, EPILOGUE_COLUMNS / w->nr) : w->panels;
  matmul_rows rows[VOLTA_CHUNK_LIMIT];
  int64_t first, last;
  volta_share(w->row_tiles * w->p.inner, (int)x->row_group, w->row_groups, &first, &last);
  for (int64_t tile = first; tile < last; tile += w->chunk) {
    const int64_t tiles = at_most(w->chunk, last - tile);
    read_rows(x, block, tile, tiles, rows);
    if (w->copy_a) copy_rows(x, tiles, rows);
    for (int64_t q = block->panel0; q < block->panel1; q += group) {
      const int64_t end = at_most(q + group, block->panel1);
      const unsigned state = flush_subnormals(w->code);
      if (w->p.k > 0)
        multiply_panels(x, block, rows, tiles, q, end);
      else
        zero_panels(x, rows, tiles, q, end);
      keep_subnormals(w->code, state);
      if (block->k1 < w->p.k) continue;
      for (int64_t i = 0, next; i < tiles;
           i = next) { /* tiles of one batch lie one below the other */
        for (next = i + 1; next < tiles && rows[next].batch == rows[i].batch;) next++;
        finish_rows(x, rows[i].batch, rows[i].i0, rows[next - 1].i1, q * w->nr,
                    at_most(end * w->nr, w->p.n));
      }
    }
  }
}

/* Where block's panels are or go. */
static void locate_panels(const matmul_thread *x, matmul_block *block, int64_t turn) {
  const matmul_plan *w = x->plan;
  const volta_matmul_problem *p = &w->p;
  if (w->pack_b) {
    /* buffers alternate: whoever packs the next block has seen all threads leave this one's
     * predecessor at the barrier between them */
    block->packed = x->packed + turn % w->buffers * w->buffer_bytes;
    block->panel_bytes = w->nr * column_bytes(w->code, p->group, block->k1 - block->k0);
  } else if (w->b_is_packed) {
    block->panel_bytes = w->nr * column_bytes(w->code, p->group, p->k);
    block->packed = (const char *)x->call->data[p->b] + block->panel0 * block->panel_bytes +
                    w->nr * column_bytes(w->code, p->group, block->k0);
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
        locate_panels(x, &block, turn);
        if (w->pack_b && busy) pack_block(x, &block, (char *)block.packed);
        if (meet) volta_pool_barrier(x->call->pool);
        if (busy) multiply_block(x, &block);
      }
    }
  }
}

/* Few rows: B streams past; a thread has batches and columns of its own. */
static void multiply_few(const matmul_thread *x) {
  const matmul_plan *w = x->plan;
  const volta_matmul_problem *p = &w->p;
  const volta_matmul_code *code = volta_matmul_streams(p->kind, x->call->isa);
  const int32_t dtype = x->call->operand[p->b].dtype;
  const volta_few run = (p->b_cs == 1 ? code->few : code->few_turned)[dtype][p->m - 1];
  int64_t outer0, outer1, inner0, inner1, panel0, panel1;
  volta_share(p->outer, (int)x->batch_group, w->batch_groups, &outer0, &outer1);
  volta_share(p->inner, (int)x->row_group, w->row_groups, &inner0, &inner1);
  volta_share(w->panels, (int)x->column_group, w->column_groups, &panel0, &panel1);
  const int64_t j1 = at_most(panel1 * w->nr, p->n);
  for (int64_t outer = outer0; outer < outer1; outer++)
    for (int64_t batch = outer * p->inner + inner0; batch < outer * p->inner + inner1; batch++)
      for (int64_t j = panel0 * w->nr; j < j1; j += STREAM_COLUMNS) {
        const int64_t end = at_most(j + STREAM_COLUMNS, j1);
        const volta_few_call few = {
            .a = volta_matmul_at(x->call, p, p->a, batch),
            .b = element_of_b(x, outer, 0, j),
            .c = (float *)volta_matmul_at(x->call, p, 0, batch) + j,
            .a_rs = p->a_rs,
            .a_cs = p->a_cs,
            .b_s = p->b_cs == 1 ? p->b_rs : p->b_cs,
            .c_rs = p->c_rs,
            .width = end - j,
            .k = p->k,
            .scale = p->scale < 0 ? NULL : (const float *)x->call->data[p->scale] + j,
            .scale_rs = p->scale_rs,
            .group = p->group};
        const unsigned state = flush_subnormals(code);
        run(&few);
        keep_subnormals(code, state);
        finish_rows(x, batch, 0, p->m, j, end);
      }
}

int64_t volta_matmul_workspace(const volta_step *step, const volta_operand *operand, int isa,
                               int threads) {
  matmul_plan w;
  if (!volta_matmul_fits(step, operand)) return 0; /* the kernel will refuse it */
  return plan_matmul(&w, step, operand, isa, threads) ? plan_bytes(&w, threads) : 0;
}

/* Blocks that a table could not have, a tile that is not this processor's, or a B that is not what
 * the pack kernel makes. */
static int settings_hold(const volta_call *call, const matmul_plan *w) {
  const volta_step *step = call->step;
  for (int i = VOLTA_MATMUL_TILE; i <= VOLTA_MATMUL_THREADS; i++)
    if (step->ints[i] < 0 || step->ints[i] > 1 << 20) return 0;
  if (step->ints[VOLTA_MATMUL_COPIES] >= VOLTA_COPIES || w->kc % 32 != 0 || w->mc < w->mr) return 0;
  if (w->p.scale >= 0 && w->code->kind == VOLTA_CODE_F32 && w->nr > 2 * w->code->width) return 0;
  if (!w->b_is_packed) return 1;
  const volta_matmul_family family = {.code = w->code, .nr = (int32_t)w->nr};
  return w->p.outer * w->p.inner == 1 && step->ints[VOLTA_MATMUL_TILE] > 0 &&
         call->operand[w->p.b].shape[0] == packed_bytes(&family, w->p.k, w->p.n, w->p.group);
}

int volta_matmul(const volta_call *call) {
  matmul_plan w;
  if (!volta_matmul_valid(call) ||
      !plan_matmul(&w, call->step, call->operand, call->isa, call->threads) ||
      !settings_hold(call, &w))
    return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);
  if (w.row_tiles == 0) return VOLTA_OK; /* no element */
  const int64_t group = (int64_t)call->thread / w.row_groups;
  matmul_thread x = {.call = call, .plan = &w, .chain = volta_chain_rows_of[call->isa]};
  x.row_group = call->thread % w.row_groups;
  x.column_group = group % w.column_groups;
  x.batch_group = group / w.column_groups;
  const int idle = x.batch_group >= w.batch_groups;
  const int64_t groups = (int64_t)w.batch_groups * w.column_groups;
  x.packed = call->workspace + group * w.buffers * w.buffer_bytes;
  x.sliver = call->workspace + groups * w.buffers * w.buffer_bytes + own_bytes(&w) * call->thread;
  x.tiles = (float *)(x.sliver + w.sliver_bytes);
  if (w.few_rows) {
    if (!idle) multiply_few(&x);
    return VOLTA_OK;
  }
  if (w.code->begin != NULL && !idle) w.code->begin();
  multiply_tiled(&x, idle);
  if (w.code->end != NULL && !idle) w.code->end();
  return VOLTA_OK;
}

/* --- weights packed once ------------------------------------------------------------------------ */

/* out int8 [bytes], w [k, n]: what a matmul with VOLTA_COPY_B_DONE and the same tile reads.
 * ints: VOLTA_MATMUL_TILE as there; [0] the kind of its A (VOLTA_CODE_..); [2] the group of N10. */
int volta_pack_weights(const volta_call *call) {
  const volta_operand *out = &call->operand[0], *b = &call->operand[1];
  const int64_t *ints = call->step->ints;
  const volta_matmul_family *family =
      ints[0] < 0 || ints[0] >= VOLTA_CODE_KINDS || ints[1] < 1
          ? NULL
          : volta_matmul_family_of((int32_t)ints[1], (int32_t)ints[0], call->isa);
  if (family == NULL || out->dtype != VOLTA_I8 || out->rank != 1 || b->rank != 2 ||
      (out->stride[0] != 1 && out->shape[0] > 1) || ints[2] < 1)
    return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);
  const int64_t k = b->shape[0], n = b->shape[1], group = ints[2];
  const int32_t wanted = family->code->kind == VOLTA_CODE_BF16 ? VOLTA_BF16 : VOLTA_I8;
  if ((family->code->kind != VOLTA_CODE_F32 && (b->dtype != wanted || k % group != 0)) ||
      out->shape[0] != packed_bytes(family, k, n, group))
    return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);
  const int64_t panel_bytes = family->nr * column_bytes(family->code, group, k);
  int64_t first, last;
  volta_share(ceil_divide(n, family->nr), call->thread, call->threads, &first, &last);
  for (int64_t panel = first; panel < last && k > 0; panel++) {
    const volta_pack_b pack = {
        .b = (const char *)call->data[1] +
             panel * family->nr * b->stride[1] * volta_itemsize(b->dtype),
        .dtype = b->dtype,
        .rs = b->stride[0],
        .cs = b->stride[1],
        .depth = k,
        .width = at_most(family->nr, n - panel * family->nr),
        .nr = family->nr,
        .group = group,
        .out = (char *)call->data[0] + panel * panel_bytes,
    };
    family->code->pack_b(&pack);
  }
  return VOLTA_OK;
}

int64_t volta_packed_bytes(int32_t tile, int32_t kind, int isa, int64_t k, int64_t n,
                           int64_t group) {
  const volta_matmul_family *family = volta_matmul_family_of(tile, kind, isa);
  if (family == NULL || tile < 1 || k < 0 || n < 0 || group < 1) return -1;
  return packed_bytes(family, k, n, group);
}
