/* What every version of the attention kernels agrees on before any arithmetic: the places of the
 * operands in the manifest, the address of a row, the visible keys, the legal positions. */
#ifndef VOLTA_ATTENTION_H
#define VOLTA_ATTENTION_H

#include "../volta.h"

enum { ATTENTION_O, ATTENTION_STATS, ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_POSITION };
enum {
  ATTENTION_GRAD_DQ,
  ATTENTION_GRAD_DK,
  ATTENTION_GRAD_DV,
  ATTENTION_GRAD_Q,
  ATTENTION_GRAD_K,
  ATTENTION_GRAD_V,
  ATTENTION_GRAD_O,
  ATTENTION_GRAD_STATS,
  ATTENTION_GRAD_G,
  ATTENTION_GRAD_POSITION
};

/* B batch, H query heads, G key heads, T queries, S keys, D head width; group = H / G. */
typedef struct {
  int64_t B, H, G, T, S, D, group;
  int causal;
  float scale;
} volta_attention_shape;

static inline volta_attention_shape
volta_attention_shape_of(const volta_step *step, const volta_operand *q, const volta_operand *k) {
  volta_attention_shape shape = {.B = q->shape[0],
                                 .H = q->shape[1],
                                 .G = k->shape[1],
                                 .T = q->shape[2],
                                 .S = k->shape[2],
                                 .D = q->shape[3],
                                 .causal = (int)step->ints[0],
                                 .scale = step->floats[0]};
  shape.group = shape.G > 0 ? shape.H / shape.G : 0;
  return shape;
}

/* Row (i, j, k, 0) of an operand of rank 4. */
static inline float *volta_row4(const volta_call *call, int operand, int64_t i, int64_t j,
                                int64_t k) {
  const int64_t *stride = call->operand[operand].stride;
  return (float *)call->data[operand] + i * stride[0] + j * stride[1] + k * stride[2];
}

static inline int64_t volta_position(const volta_call *call, int operand, int64_t b) {
  return ((const int32_t *)call->data[operand])[b * call->operand[operand].stride[0]];
}

/* Keys that query t sees, given the position of query 0. */
static inline int64_t volta_visible(const volta_attention_shape *shape, int64_t position,
                                    int64_t t) {
  return shape->causal ? position + t + 1 : shape->S;
}

/* Rows position .. position + T must lie in a table of `limit` rows, so every position must lie in
 * [0, limit - T + 1): the failure's detail is (position, limit - T + 1). */
static inline int volta_check_positions(const volta_call *call, int operand, int64_t T,
                                        int64_t limit) {
  for (int64_t b = 0; b < call->operand[operand].shape[0]; b++) {
    int64_t position = volta_position(call, operand, b);
    if (position < 0 || position + T > limit)
      return volta_fail(call, VOLTA_INDEX_RANGE, position, limit - T + 1);
  }
  return VOLTA_OK;
}

#endif
