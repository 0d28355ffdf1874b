/* ref/softmax.c over blocks of 32: the same numbered passes, a row's N2 in one block of lanes. */
#include <math.h>

#include "../rows.h"
#include "vector.h"

/* volta_row_max */
static inline float row_max(const float *x, int64_t V) {
  volta_block m = block_set(-INFINITY);
  for (int64_t i = 0; i < V; i += VOLTA_LANES)
    m = block_max(block_load(x + i, V - i, -INFINITY), m);
  return block_largest(m) + 0.0f;
}

/* lanes += exp(x - m) for the first n of a block; keeps exp(x - m) in e unless e is NULL. Beyond n,
 * exp(-inf - m) adds +0, or NaN to a sum that is NaN anyway. */
static inline volta_block block_sum_exp(volta_block lanes, float *e, const float *x, int64_t n,
                                        volta_block m) {
  const volta_block block = block_exp(block_sub(block_load(x, n, -INFINITY), m));
  if (e != NULL) block_store(e, block, n);
  return block_add(lanes, block);
}

/* N2(exp(x - m)); keeps exp(x - m) in e unless e is NULL. Fetches the row at `next`, which the
 * exponentials leave time for. */
static inline float row_sum_exp(float *e, const float *x, int64_t V, float m, const float *next) {
  const volta_block maximum = block_set(m);
  volta_block lanes = block_set(0.0f);
  int64_t i = 0;
  for (; i + VOLTA_LANES <= V; i += VOLTA_LANES) {
    block_fetch(next + i);
    lanes = block_sum_exp(lanes, e == NULL ? NULL : e + i, x + i, VOLTA_LANES, maximum);
  }
  if (i < V) lanes = block_sum_exp(lanes, e == NULL ? NULL : e + i, x + i, V - i, maximum);
  return block_sum(lanes);
}

/* x = log(x) for a group of rows */
static inline void group_log(float x[VOLTA_ROW_GROUP]) {
  for (int k = 0; k < VOLTA_ROW_GROUP; k++) x[k] = volta_log(x[k]);
}

int VOLTA_ISA_NAME(softmax)(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], V = call->operand[0].shape[1], group = row_group(V);
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r += group) {
    const int64_t rows = last - r < group ? last - r : group;
    float m[VOLTA_ROW_GROUP], s[VOLTA_ROW_GROUP];

    /* 1: m = max x */
    for (int64_t k = 0; k < rows; k++) m[k] = row_max(volta_row(call, 1, r + k), V);

    /* 2: e = exp(x - m), kept in the output row; s = N2(e) */
    for (int64_t k = 0; k < rows; k++)
      s[k] = row_sum_exp(volta_row(call, 0, r + k), volta_row(call, 1, r + k), V, m[k],
                         volta_next_row(call, 1, r + k, group, last));

    /* 3: y = e * (1 / s) */
    for (int64_t k = 0; k < rows; k++) {
      float *y = volta_row(call, 0, r + k);
      const volta_block inverse = block_set(1.0f / s[k]);
      for (int64_t i = 0; i < V; i += VOLTA_LANES)
        block_store(y + i, block_mul(block_load(y + i, V - i, 0.0f), inverse), V - i);
    }
  }
  return VOLTA_OK;
}

int VOLTA_ISA_NAME(softmax_grad)(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], V = call->operand[0].shape[1], group = row_group(V);
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r += group) {
    const int64_t rows = last - r < group ? last - r : group;
    float dot[VOLTA_ROW_GROUP];

    /* 1: dot = N2(g * y) */
    for (int64_t k = 0; k < rows; k++) {
      const float *y = volta_row(call, 1, r + k), *g = volta_row(call, 2, r + k);
      volta_block lanes = block_set(0.0f);
      for (int64_t i = 0; i < V; i += VOLTA_LANES)
        lanes = block_add(
            lanes, block_mul(block_load(g + i, V - i, 0.0f), block_load(y + i, V - i, 0.0f)));
      dot[k] = block_sum(lanes);
    }

    /* 2: dx = y * (g - dot) */
    for (int64_t k = 0; k < rows; k++) {
      float *dx = volta_row(call, 0, r + k);
      const float *y = volta_row(call, 1, r + k), *g = volta_row(call, 2, r + k);
      const volta_block dots = block_set(dot[k]);
      for (int64_t i = 0; i < V; i += VOLTA_LANES) {
        const volta_block difference = block_sub(block_load(g + i, V - i, 0.0f), dots);
        block_store(dx + i, block_mul(block_load(y + i, V - i, 0.0f), difference), V - i);
      }
    }
  }
  return VOLTA_OK;
}

int VOLTA_ISA_NAME(log_softmax)(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], V = call->operand[0].shape[1], group = row_group(V);
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r += group) {
    const int64_t rows = last - r < group ? last - r : group;
    float m[VOLTA_ROW_GROUP], s[VOLTA_ROW_GROUP] = {0};

    /* 1: m = max x */
    for (int64_t k = 0; k < rows; k++) m[k] = row_max(volta_row(call, 1, r + k), V);

    /* 2: s = N2(exp(x - m)) */
    for (int64_t k = 0; k < rows; k++)
      s[k] = row_sum_exp(NULL, volta_row(call, 1, r + k), V, m[k],
                         volta_next_row(call, 1, r + k, group, last));

    /* 3: y = (x - m) - log(s) */
    group_log(s);
    for (int64_t k = 0; k < rows; k++) {
      float *y = volta_row(call, 0, r + k);
      const float *x = volta_row(call, 1, r + k);
      const volta_block maximum = block_set(m[k]), log_s = block_set(s[k]);
      for (int64_t i = 0; i < V; i += VOLTA_LANES) {
        const volta_block shifted = block_sub(block_load(x + i, V - i, 0.0f), maximum);
        block_store(y + i, block_sub(shifted, log_s), V - i);
      }
    }
  }
  return VOLTA_OK;
}

int VOLTA_ISA_NAME(log_softmax_grad)(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], V = call->operand[0].shape[1], group = row_group(V);
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r += group) {
    const int64_t rows = last - r < group ? last - r : group;
    float total[VOLTA_ROW_GROUP];

    /* 1: total = N2(g) */
    for (int64_t k = 0; k < rows; k++) {
      const float *g = volta_row(call, 2, r + k);
      volta_block lanes = block_set(0.0f);
      for (int64_t i = 0; i < V; i += VOLTA_LANES)
        lanes = block_add(lanes, block_load(g + i, V - i, 0.0f));
      total[k] = block_sum(lanes);
    }

    /* 2: dx = g - exp(y) * total */
    for (int64_t k = 0; k < rows; k++) {
      float *dx = volta_row(call, 0, r + k);
      const float *y = volta_row(call, 1, r + k), *g = volta_row(call, 2, r + k);
      const volta_block totals = block_set(total[k]);
      for (int64_t i = 0; i < V; i += VOLTA_LANES) {
        const volta_block p = block_exp(block_load(y + i, V - i, 0.0f));
        block_store(dx + i, block_sub(block_load(g + i, V - i, 0.0f), block_mul(p, totals)), V - i);
      }
    }
  }
  return VOLTA_OK;
}
