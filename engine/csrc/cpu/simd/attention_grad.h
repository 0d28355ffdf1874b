/* The gradient of attention on register tiles (N5); cpu/ref/attention.c says what it computes. */
#ifndef VOLTA_SIMD_ATTENTION_GRAD_H
#define VOLTA_SIMD_ATTENTION_GRAD_H

#include "attention_block.h"

int64_t VOLTA_ISA_NAME(attention_grad_workspace)(const volta_step *step,
                                                 const volta_operand *operand, int isa,
                                                 int threads) {
  (void)isa;
  const volta_attention_shape shape =
      volta_attention_shape_of(step, &operand[ATTENTION_GRAD_Q], &operand[ATTENTION_GRAD_K]);
  const attention_sizes sizes = attention_sizes_of(&shape, 1);
  return threads * attention_bytes(&sizes, 1);
}

/* delta = N2 over D (g * o) */
static float row_delta(const float *g, const float *o, int64_t D) {
  volta_block lanes = block_set(0.0f);
  for (int64_t d = 0; d < D; d += VOLTA_LANES)
    lanes =
        block_add(lanes, block_mul(block_load(g + d, D - d, 0.0f), block_load(o + d, D - d, 0.0f)));
  return block_sum(lanes);
}

/* p holds s and becomes exp(s - m) * i; ds holds dp and becomes (p * (dp - delta)) * scale. */
static void score_gradients(float *restrict p, float *restrict ds, int64_t n, const float *stats,
                            float delta, float scale) {
  const float m = stats[0], inverse = stats[1];
  for (int64_t j = 0; j < n; j++) {
    const float probability = volta_exp(p[j] - m) * inverse;
    p[j] = probability;
    ds[j] = (probability * (ds[j] - delta)) * scale;
  }
}

/* For keys j in [first, last): out_j = N1 over the block's rows t that see j (a[t][j - first],
 * x_t), which goes on from out_j where an earlier block saw j: where j < covered. */
static void block_queries(const attention_block *block, const float *a, const float *x,
                          int64_t first, int64_t covered, int64_t last, float *out,
                          int64_t out_row) {
  const int64_t D = block->shape.D, a_row = block->sizes.score_row, x_row = block->sizes.copy_row;
  int64_t row = 0; /* the first that sees key j */
  for (int64_t j = first, m; j < last; j += m) {
    m = smaller((j < covered ? smaller(covered, last) : last) - j, ATTENTION_ROWS);
    while (block->seen[row] <= j) row++;
    for (int64_t d = 0, nv; d < D; d += nv * VOLTA_WIDTH) {
      nv = tile_vectors(m, D - d);
      queries_tiles[m][nv](mask_first(D - d), j >= covered, block->rows - row,
                           block->seen[row] - 1 - j, a + row * a_row + j - first, a_row,
                           x + row * x_row + d, x_row, out + j * out_row + d, out_row);
    }
  }
}

/* What a call of attention_grad_rows is to produce, from queries first .. last of one head. */
enum { WANT_DQ = 1, WANT_DK_DV = 2 };

/* WANT_DQ needs every panel; WANT_DK_DV gives dk and dv of the keys of panels panel ..
 * panel_end. */
static void attention_grad_rows(attention_block *block, int64_t b, int64_t h, int64_t first,
                                int64_t last, int64_t panel, int64_t panel_end, int want) {
  const volta_call *call = block->call;
  const volta_operand *operand = call->operand;
  const volta_attention_shape *shape = &block->shape;
  const int64_t g = h / shape->group, position = volta_position(call, ATTENTION_GRAD_POSITION, b);
  const int64_t origin = panel * ATTENTION_PANEL;
  block->rows = last - first;
  for (int64_t r = 0; r < block->rows; r++) {
    block->seen[r] = volta_visible(shape, position, first + r);
    block->out[r] = volta_row4(call, ATTENTION_GRAD_DQ, b, h, first + r);
    const float *q = volta_row4(call, ATTENTION_GRAD_Q, b, h, first + r);
    const float *grad = volta_row4(call, ATTENTION_GRAD_G, b, h, first + r);
    prefetch_row(q + ATTENTION_AHEAD * operand[ATTENTION_GRAD_Q].stride[2], shape->D);
    prefetch_row(grad + ATTENTION_AHEAD * operand[ATTENTION_GRAD_G].stride[2], shape->D);
    prefetch_row(volta_row4(call, ATTENTION_GRAD_O, b, h, first + r), shape->D);
    prefetch_row(block->out[r], shape->D);
    copy_row(block->q + r * block->sizes.copy_row, q, shape->D);
    copy_row(block->g + r * block->sizes.copy_row, grad, shape->D);
  }
  const int64_t end = smaller(block->seen[block->rows - 1], panel_end * ATTENTION_PANEL);
  if (end <= origin && want == WANT_DK_DV) return;
  const int64_t keys = volta_visible(shape, position, shape->T - 1);
  keys_begin(&block->k, volta_row4(call, ATTENTION_GRAD_K, b, g, 0),
             operand[ATTENTION_GRAD_K].stride[2], keys);
  keys_begin(&block->v, volta_row4(call, ATTENTION_GRAD_V, b, g, 0),
             operand[ATTENTION_GRAD_V].stride[2], keys);
  block_scores(block, &block->k, block->q, shape->scale, panel, panel_end, block->p);
  block_scores(block, &block->v, block->g, 1.0f, panel, panel_end, block->ds);
  float delta[ATTENTION_BLOCK_ROWS];
  for (int64_t r = 0; r < block->rows; r++)
    delta[r] = row_delta(block->g + r * block->sizes.copy_row,
                         volta_row4(call, ATTENTION_GRAD_O, b, h, first + r), shape->D);
  for (int64_t r = 0; r < block->rows; r++) {
    const int64_t n = smaller(block->seen[r], end) - origin;
    if (n > 0)
      score_gradients(block->p + r * block->sizes.score_row, block->ds + r * block->sizes.score_row,
                      round_up(n, VOLTA_WIDTH),
                      volta_row4(call, ATTENTION_GRAD_STATS, b, h, first + r), delta[r],
                      shape->scale);
  }
  if (want & WANT_DQ) block_keys(block, block->ds, &block->k);
  if (want & WANT_DK_DV) {
    int64_t covered = h > g * shape->group ? keys : 0; /* keys that an earlier block saw */
    if (first > 0) covered = larger(covered, volta_visible(shape, position, first - 1));
    block_queries(block, block->p, block->g, origin, covered, end,
                  volta_row4(call, ATTENTION_GRAD_DV, b, g, 0),
                  operand[ATTENTION_GRAD_DV].stride[2]);
    block_queries(block, block->ds, block->q, origin, covered, end,
                  volta_row4(call, ATTENTION_GRAD_DK, b, g, 0),
                  operand[ATTENTION_GRAD_DK].stride[2]);
  }
}

/* All queries of a key head, head by head and ascending: the order of the contractions of dk and
 * dv. Keys that no query sees get +0. */
static void attention_grad_keys(attention_block *block, int64_t b, int64_t g, int64_t panel,
                                int64_t panel_end, int want) {
  const volta_attention_shape *shape = &block->shape;
  for (int64_t h = g * shape->group; h < (g + 1) * shape->group; h++)
    for (int64_t first = 0; first < shape->T; first += block->sizes.rows)
      attention_grad_rows(block, b, h, first, smaller(shape->T, first + block->sizes.rows), panel,
                          panel_end, want);
  const int64_t position = volta_position(block->call, ATTENTION_GRAD_POSITION, b);
  const int64_t seen =
      shape->T * shape->group > 0 ? volta_visible(shape, position, shape->T - 1) : 0;
  const int64_t last_key = smaller(shape->S, panel_end * ATTENTION_PANEL);
  for (int64_t j = larger(seen, panel * ATTENTION_PANEL); j < last_key; j++) {
    zero_row(volta_row4(block->call, ATTENTION_GRAD_DK, b, g, j), shape->D);
    zero_row(volta_row4(block->call, ATTENTION_GRAD_DV, b, g, j), shape->D);
  }
}

/* A thread takes whole key heads: five contractions per visible pair. */
static void attention_grad_whole(attention_block *block) {
  const volta_attention_shape *shape = &block->shape;
  const int64_t panels = round_up(shape->S, ATTENTION_PANEL) / ATTENTION_PANEL;
  cost_line line = {0, 0};
  for (int pass = 0; pass < 2; pass++)
    for (int64_t b = 0; b < shape->B; b++) {
      const int64_t position = volta_position(block->call, ATTENTION_GRAD_POSITION, b);
      const int64_t cost =
          shape->S + (shape->T > 0 ? rows_cost(shape, position, 1, 0, shape->T) : 0);
      for (int64_t g = 0; g < shape->G; g++)
        if (pass == 0)
          line.total += cost;
        else if (cost_mine(&line, cost, block->call))
          attention_grad_keys(block, b, g, 0, panels, WANT_DQ | WANT_DK_DV);
    }
}

/* With fewer key heads than threads: blocks of queries for dq, then panels of keys for dk and
 * dv. The scores are computed in both, so there are seven contractions per visible pair. */
static void attention_grad_split(attention_block *block) {
  const volta_attention_shape *shape = &block->shape;
  const int64_t panels = round_up(shape->S, ATTENTION_PANEL) / ATTENTION_PANEL;
  cost_line queries = {0, 0}, keys = {0, 0};
  for (int pass = 0; pass < 2; pass++)
    for (int64_t b = 0; b < shape->B; b++) {
      const int64_t position = volta_position(block->call, ATTENTION_GRAD_POSITION, b);
      for (int64_t h = 0; h < shape->H; h++)
        for (int64_t first = 0; first < shape->T; first += block->sizes.rows) {
          const int64_t last = smaller(shape->T, first + block->sizes.rows);
          const int64_t cost = rows_cost(shape, position, 1, first, last);
          if (pass == 0)
            queries.total += cost;
          else if (cost_mine(&queries, cost, block->call))
            attention_grad_rows(block, b, h, first, last, 0, panels, WANT_DQ);
        }
    }
  for (int pass = 0; pass < 2; pass++)
    for (int64_t b = 0; b < shape->B; b++) {
      const int64_t position = volta_position(block->call, ATTENTION_GRAD_POSITION, b);
      for (int64_t g = 0; g < shape->G; g++)
        for (int64_t panel = 0; panel < panels; panel++) {
          const int64_t blind = shape->causal ? panel * ATTENTION_PANEL - position : 0;
          const int64_t cost =
              1 + larger(0, shape->T - larger(0, blind)); /* queries that see the panel */
          if (pass == 0)
            keys.total += cost;
          else if (cost_mine(&keys, cost, block->call))
            attention_grad_keys(block, b, g, panel, panel + 1, WANT_DK_DV);
        }
    }
}

int VOLTA_ISA_NAME(attention_grad)(const volta_call *call) {
  const volta_attention_shape shape = volta_attention_shape_of(
      call->step, &call->operand[ATTENTION_GRAD_Q], &call->operand[ATTENTION_GRAD_K]);
  if (shape.causal) {
    const int status = volta_check_positions(call, ATTENTION_GRAD_POSITION, shape.T, shape.S);
    if (status != VOLTA_OK) return status;
  }
  attention_block block = attention_begin(call, &shape, 1);
  const int64_t heads = shape.B * shape.G;
  const int64_t whole =
      5 * ((heads + call->threads - 1) / call->threads); /* of the busiest thread */
  const int64_t split = 7 * heads / call->threads;
  if (whole <= split)
    attention_grad_whole(&block);
  else
    attention_grad_split(&block);
  return VOLTA_OK;
}

#endif
