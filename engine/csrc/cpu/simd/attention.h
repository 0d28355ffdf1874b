/* Attention on register tiles (N5); cpu/ref/attention.c says what it computes. */
#ifndef VOLTA_SIMD_ATTENTION_H
#define VOLTA_SIMD_ATTENTION_H

#include <math.h>

#include "attention_block.h"

/* Rows r .. r + rows of the scores become p by N4; stats = (m, 1 / sum). Each pass runs over all
 * rows before the next begins, so one row's fold and division hide behind its neighbours' work.
 * Whole N2 blocks are written; elements after the visible ones are read as m, since the
 * exponential of -inf or of a chance value could be subnormal, which is slow. */
static void block_softmax(const attention_block *block, int64_t r, int64_t rows,
                          float *const *stats) {
  const int64_t score_row = block->sizes.score_row, *seen = block->seen + r;
  float *p = block->p + r * score_row;

  /* 1: m = max s */
  for (int64_t i = 0; i < rows; i++) {
    const float *x = p + i * score_row;
    volta_block largest = block_set(-INFINITY);
    for (int64_t j = 0; j < seen[i]; j += VOLTA_LANES)
      largest = block_max(block_load(x + j, seen[i] - j, -INFINITY), largest);
    stats[i][0] = block_largest(largest) + 0.0f;
  }

  /* 2: e = exp(s - m); the lanes of N2(e) */
  volta_block lanes[ATTENTION_ROWS];
  for (int64_t i = 0; i < rows; i++) {
    float *x = p + i * score_row;
    const float m = stats[i][0];
    volta_block sum = block_set(0.0f);
    for (int64_t j = 0; j < seen[i]; j += VOLTA_LANES) {
      const volta_block e = block_exp(block_sub(block_load(x + j, seen[i] - j, m), block_set(m)));
      sum = block_add(sum, block_keep(e, seen[i] - j));
      block_store(x + j, e, VOLTA_LANES);
    }
    lanes[i] = sum;
  }
  for (int64_t i = 0; i < rows; i++) stats[i][1] = 1.0f / block_sum(lanes[i]);

  /* 3: p = e * (1 / N2(e)) */
  for (int64_t i = 0; i < rows; i++) {
    float *x = p + i * score_row;
    const volta_block inverse = block_set(stats[i][1]);
    for (int64_t j = 0; j < seen[i]; j += VOLTA_LANES)
      block_store(x + j, block_mul(block_load(x + j, VOLTA_LANES, 0.0f), inverse), VOLTA_LANES);
  }
}

int64_t VOLTA_ISA_NAME(attention_workspace)(const volta_step *step, const volta_operand *operand,
                                            int isa, int threads) {
  (void)isa;
  const volta_attention_shape shape =
      volta_attention_shape_of(step, &operand[ATTENTION_Q], &operand[ATTENTION_K]);
  const attention_sizes sizes = attention_sizes_of(&shape, 0);
  return threads * attention_bytes(&sizes, 0);
}

static void attention_rows(attention_block *block, int64_t b, int64_t g, int64_t first,
                           int64_t last) {
  const volta_call *call = block->call;
  const volta_attention_shape *shape = &block->shape;
  const int64_t position = volta_position(call, ATTENTION_POSITION, b);
  float *stats[ATTENTION_BLOCK_ROWS];
  block->rows = last - first;
  int64_t t = first / shape->group, u = first % shape->group;
  for (int64_t r = 0; r < block->rows; r++) {
    const int64_t h = g * shape->group + u;
    block->seen[r] = volta_visible(shape, position, t);
    block->out[r] = volta_row4(call, ATTENTION_O, b, h, t);
    stats[r] = volta_row4(call, ATTENTION_STATS, b, h, t);
    const float *q = volta_row4(call, ATTENTION_Q, b, h, t);
    prefetch_row(q + ATTENTION_AHEAD * call->operand[ATTENTION_Q].stride[2], shape->D);
    prefetch_row(block->out[r], shape->D);
    copy_row(block->q + r * block->sizes.copy_row, q, shape->D);
    if (++u == shape->group) u = 0, t++;
  }
  const int64_t keys = volta_visible(shape, position, shape->T - 1);
  keys_begin(&block->k, volta_row4(call, ATTENTION_K, b, g, 0),
             call->operand[ATTENTION_K].stride[2], keys);
  keys_begin(&block->v, volta_row4(call, ATTENTION_V, b, g, 0),
             call->operand[ATTENTION_V].stride[2], keys);
  block_scores(block, &block->k, block->q, shape->scale, 0, INT32_MAX, block->p);
  for (int64_t r = 0; r < block->rows; r += ATTENTION_ROWS)
    block_softmax(block, r, smaller(block->rows - r, ATTENTION_ROWS), stats + r);
  block_keys(block, block->p, &block->v);
}

int VOLTA_ISA_NAME(attention)(const volta_call *call) {
  const volta_attention_shape shape = volta_attention_shape_of(
      call->step, &call->operand[ATTENTION_Q], &call->operand[ATTENTION_K]);
  if (shape.causal) {
    const int status = volta_check_positions(call, ATTENTION_POSITION, shape.T, shape.S);
    if (status != VOLTA_OK) return status;
  }
  attention_block block = attention_begin(call, &shape, 0);
  const int64_t rows = shape.T * shape.group;
  cost_line line = {0, 0};
  for (int pass = 0; pass < 2; pass++)
    for (int64_t b = 0; b < shape.B; b++) {
      const int64_t position = volta_position(call, ATTENTION_POSITION, b);
      for (int64_t g = 0; g < shape.G; g++)
        for (int64_t first = 0; first < rows; first += block.sizes.rows) {
          const int64_t last = smaller(rows, first + block.sizes.rows);
          const int64_t cost = rows_cost(&shape, position, shape.group, first, last);
          if (pass == 0)
            line.total += cost;
          else if (cost_mine(&line, cost, call))
            attention_rows(&block, b, g, first, last);
        }
    }
  return VOLTA_OK;
}

#endif
