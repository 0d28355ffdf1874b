/* Cross entropy of each row's logits against one target, its gradient, and the count for the mean.
 *
 * R rows of V logits; targets [R] in [0, V), or the ignore index: such a row gives +0 and is not
 * read. Any other target is VOLTA_INDEX_RANGE and nothing is written. Threads divide the rows. */
#include "../../vmath.h"
#include "../lanes.h"
#include "../rows.h"

/* loss = -log(softmax(x)[target]) = log(s) - (x[target] - m) */
int volta_cross_entropy_ref(const volta_call *call) {
  const int64_t R = call->operand[1].shape[0], V = call->operand[1].shape[1];
  const int status = volta_check_indices(call, 2, V, call->step->ints[0]);
  if (status != VOLTA_OK) return status;
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r++) {
    float *loss = volta_element(call, 0, r);
    const float *x = volta_row(call, 1, r);
    const int32_t target = volta_index(call, 2, r);
    if (target == call->step->ints[0]) {
      *loss = 0.0f;
      continue;
    }

    /* 1: m = max x */
    const float m = volta_row_max(x, V, 1);

    /* 2: s = N2(exp(x - m)) */
    float lane[VOLTA_LANES];
    volta_lanes_start(lane);
    for (int64_t i = 0; i < V; i++) lane[i % VOLTA_LANES] += volta_exp(x[i] - m);
    const float s = volta_lanes_combine(lane);

    /* 3: loss = log(s) - (x[target] - m) */
    *loss = volta_log(s) - (x[target] - m);
  }
  return VOLTA_OK;
}

/* loss = log(sum exp x) - x[target], so dx = (softmax(x) - onehot(target)) * g.
 * dx may be the same memory as the logits. */
int volta_cross_entropy_grad_ref(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], V = call->operand[0].shape[1];
  const int status = volta_check_indices(call, 2, V, call->step->ints[0]);
  if (status != VOLTA_OK) return status;
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r++) {
    float *dx = volta_row(call, 0, r);
    const float *x = volta_row(call, 1, r);
    const int32_t target = volta_index(call, 2, r);
    if (target == call->step->ints[0]) {
      for (int64_t i = 0; i < V; i++) dx[i] = 0.0f;
      continue;
    }
    const float g = *volta_element(call, 3, r);

    /* 1: m = max x */
    const float m = volta_row_max(x, V, 1);

    /* 2: e = exp(x - m), kept in the output row; s = N2(e) */
    float lane[VOLTA_LANES];
    volta_lanes_start(lane);
    for (int64_t i = 0; i < V; i++) {
      dx[i] = volta_exp(x[i] - m);
      lane[i % VOLTA_LANES] += dx[i];
    }
    const float s = volta_lanes_combine(lane);

    /* 3: p = e * (1 / s); dx = (p - onehot) * g */
    const float inverse = 1.0f / s;
    for (int64_t i = 0; i < V; i++) {
      const float p = dx[i] * inverse;
      const float onehot = i == target ? 1.0f : 0.0f;
      dx[i] = (p - onehot) * g;
    }
  }
  return VOLTA_OK;
}

/* out = max(1, how many targets differ from the ignore index): the divisor of a mean loss. One
 * output, so one thread. */
int volta_count_valid_ref(const volta_call *call) {
  const int64_t R = call->operand[1].shape[0];
  if (call->thread != 0) return VOLTA_OK;
  int64_t count = 0;
  for (int64_t r = 0; r < R; r++) count += volta_index(call, 1, r) != call->step->ints[0];
  *(float *)call->data[0] = (float)(count > 1 ? count : 1);
  return VOLTA_OK;
}
