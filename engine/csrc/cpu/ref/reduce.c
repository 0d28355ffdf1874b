#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-vectorize")
#endif
#include <math.h>

#include "../lanes.h"
#include "../reduce_problem.h"

static float sum_squares(const float *x, int64_t count, int64_t stride) {
  float lane[VOLTA_LANES];
  volta_lanes_start(lane);
  for (int64_t i = 0; i < count; i++) lane[i % VOLTA_LANES] += x[i * stride] * x[i * stride];
  return volta_lanes_combine(lane);
}

/* The index of the first NaN, else of the first of the largest elements. */
static int64_t argmax(const float *x, int64_t count, int64_t stride) {
  int64_t best = 0;
  for (int64_t i = 0; i < count; i++) {
    const float value = x[i * stride];
    if (value != value) return i;
    if (value > x[best * stride]) best = i;
  }
  return best;
}

int volta_reduce_ref(const volta_call *call) {
  volta_reduce_problem p;
  if (!volta_reduce_problem_of(call, &p)) return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);
  int64_t first, last, out, in;
  volta_share(p.outputs, call->thread, call->threads, &first, &last);
  for (int64_t i = first; i < last; i++) {
    volta_reduce_at(&p, i, &out, &in);
    const float *x = (const float *)call->data[1] + in;
    float y = -INFINITY;
    if (p.kind == VOLTA_REDUCE_SUM) y = volta_lanes_sum(x, p.count, p.stride);
    if (p.kind == VOLTA_REDUCE_SUM_SQUARES) y = sum_squares(x, p.count, p.stride);
    if (p.kind == VOLTA_REDUCE_MAX && p.count > 0) y = x[argmax(x, p.count, p.stride) * p.stride];
    if (p.kind == VOLTA_REDUCE_ARGMAX) {
      ((int32_t *)call->data[0])[out] = (int32_t)argmax(x, p.count, p.stride);
    } else {
      ((float *)call->data[0])[out] = p.scaled ? y * p.factor : y;
    }
  }
  return VOLTA_OK;
}
