/* N4: softmax and log-softmax over the last axis, and their gradients.
 *
 * R rows of V elements; threads divide the rows. A row may be overwritten in place (y on x, dx on y
 * or g). A row of -inf only gives NaN, and so does a row with a NaN: volta_row_max ignores it, but
 * exp(NaN - m) is NaN and so is the sum. V = 0 writes nothing. */
#include "../../vmath.h"
#include "../lanes.h"
#include "../rows.h"

/* y = softmax(x) */
int volta_softmax_ref(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], V = call->operand[0].shape[1];
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r++) {
    float *y = volta_row(call, 0, r);
    const float *x = volta_row(call, 1, r);

    /* 1: m = max x */
    const float m = volta_row_max(x, V, 1);

    /* 2: e = exp(x - m), kept in the output row; s = N2(e) */
    float lane[VOLTA_LANES];
    volta_lanes_start(lane);
    for (int64_t i = 0; i < V; i++) {
      y[i] = volta_exp(x[i] - m);
      lane[i % VOLTA_LANES] += y[i];
    }
    const float s = volta_lanes_combine(lane);

    /* 3: y = e * (1 / s) */
    const float inverse = 1.0f / s;
    for (int64_t i = 0; i < V; i++) y[i] = y[i] * inverse;
  }
  return VOLTA_OK;
}

/* y_i = e_i / s, so dy_i/dx_j = y_i * (i == j) - y_i * y_j, and dx = y * (g - N2(g * y)) */
int volta_softmax_grad_ref(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], V = call->operand[0].shape[1];
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r++) {
    float *dx = volta_row(call, 0, r);
    const float *y = volta_row(call, 1, r);
    const float *g = volta_row(call, 2, r);

    /* 1: dot = N2(g * y) */
    float lane[VOLTA_LANES];
    volta_lanes_start(lane);
    for (int64_t i = 0; i < V; i++) lane[i % VOLTA_LANES] += g[i] * y[i];
    const float dot = volta_lanes_combine(lane);

    /* 2: dx = y * (g - dot) */
    for (int64_t i = 0; i < V; i++) dx[i] = y[i] * (g[i] - dot);
  }
  return VOLTA_OK;
}

/* y = log(softmax(x)), without the quotient: (x - m) - log(s) */
int volta_log_softmax_ref(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], V = call->operand[0].shape[1];
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r++) {
    float *y = volta_row(call, 0, r);
    const float *x = volta_row(call, 1, r);

    /* 1: m = max x */
    const float m = volta_row_max(x, V, 1);

    /* 2: s = N2(exp(x - m)) */
    float lane[VOLTA_LANES];
    volta_lanes_start(lane);
    for (int64_t i = 0; i < V; i++) lane[i % VOLTA_LANES] += volta_exp(x[i] - m);
    const float s = volta_lanes_combine(lane);

    /* 3: y = (x - m) - log(s) */
    const float log_s = volta_log(s);
    for (int64_t i = 0; i < V; i++) y[i] = (x[i] - m) - log_s;
  }
  return VOLTA_OK;
}

/* y_i = x_i - log(sum exp x), so dy_i/dx_j = (i == j) - exp(y_j), and dx = g - exp(y) * N2(g) */
int volta_log_softmax_grad_ref(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], V = call->operand[0].shape[1];
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r++) {
    float *dx = volta_row(call, 0, r);
    const float *y = volta_row(call, 1, r);
    const float *g = volta_row(call, 2, r);

    /* 1: total = N2(g) */
    const float total = volta_lanes_sum(g, V, 1);

    /* 2: dx = g - exp(y) * total */
    for (int64_t i = 0; i < V; i++) dx[i] = g[i] - volta_exp(y[i]) * total;
  }
  return VOLTA_OK;
}
