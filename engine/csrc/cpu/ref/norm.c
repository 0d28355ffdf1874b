/* N6: layer norm and RMS norm over the last axis, and their gradients.
 *
 * R rows of C channels. Threads divide the rows; for dw and db, which sum over rows, they divide
 * the channels. 1/C is 1.0f / (float)C, rounded once. C = 0 leaves y empty; its statistics are NaN.
 * dx must not overlap an input: another thread may still read it for dw. */
#include "../../vmath.h"
#include "../lanes.h"
#include "../rows.h"

/* y [R, C], stats [R, 2] = layer_norm(x [R, C], w [C], b [C]) */
int volta_layer_norm_ref(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], C = call->operand[0].shape[1];
  const float inverse_c = 1.0f / (float)C, eps = call->step->floats[0];
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r++) {
    float *y = volta_row(call, 0, r);
    const float *x = volta_row(call, 2, r);

    /* 1: mean = N2(x) * (1/C) */
    const float mean = volta_lanes_sum(x, C, 1) * inverse_c;

    /* 2: var = N2((x - mean)^2) * (1/C) */
    float lane[VOLTA_LANES];
    volta_lanes_start(lane);
    for (int64_t c = 0; c < C; c++) {
      const float centered = x[c] - mean;
      lane[c % VOLTA_LANES] += centered * centered;
    }
    const float var = volta_lanes_combine(lane) * inverse_c;
    const float rstd = 1.0f / VOLTA_SQRT(var + eps);

    /* 3: y = ((x - mean) * rstd) * w + b */
    for (int64_t c = 0; c < C; c++) {
      const float w = *volta_element(call, 3, c), b = *volta_element(call, 4, c);
      y[c] = ((x[c] - mean) * rstd) * w + b;
    }
    *volta_entry(call, 1, r, 0) = mean;
    *volta_entry(call, 1, r, 1) = rstd;
  }
  return VOLTA_OK;
}

/* dx [R, C], dw [C], db [C] from x, stats, w and g = dloss/dy.
 * Forward: h = (x - mean) * rstd; y = h * w + b. With d = dloss/dh = g * w, and with mean and rstd
 * being functions of the whole row: dx = (d - mean(d) - h * mean(d * h)) * rstd. */
int volta_layer_norm_grad_ref(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], C = call->operand[0].shape[1];
  const float inverse_c = 1.0f / (float)C;
  int64_t first, last;
  float lane[VOLTA_LANES], d_lane[VOLTA_LANES], dh_lane[VOLTA_LANES];

  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r++) {
    float *dx = volta_row(call, 0, r);
    const float *x = volta_row(call, 3, r);
    const float mean = *volta_entry(call, 4, r, 0), rstd = *volta_entry(call, 4, r, 1);
    const float *g = volta_row(call, 6, r);

    /* 1: a = N2(d) * (1/C); c = N2(d * h) * (1/C) */
    volta_lanes_start(d_lane);
    volta_lanes_start(dh_lane);
    for (int64_t i = 0; i < C; i++) {
      const float h = (x[i] - mean) * rstd;
      const float d = g[i] * *volta_element(call, 5, i);
      d_lane[i % VOLTA_LANES] += d;
      dh_lane[i % VOLTA_LANES] += d * h;
    }
    const float a = volta_lanes_combine(d_lane) * inverse_c;
    const float c = volta_lanes_combine(dh_lane) * inverse_c;

    /* 2: dx = ((d - a) - h * c) * rstd */
    for (int64_t i = 0; i < C; i++) {
      const float h = (x[i] - mean) * rstd;
      const float d = g[i] * *volta_element(call, 5, i);
      dx[i] = ((d - a) - h * c) * rstd;
    }
  }

  volta_share(C, call->thread, call->threads, &first, &last);
  for (int64_t i = first; i < last; i++) {
    /* 3: dw = N2 over rows (g * h) */
    volta_lanes_start(lane);
    for (int64_t r = 0; r < R; r++) {
      const float h =
          (volta_row(call, 3, r)[i] - *volta_entry(call, 4, r, 0)) * *volta_entry(call, 4, r, 1);
      lane[r % VOLTA_LANES] += volta_row(call, 6, r)[i] * h;
    }
    *volta_element(call, 1, i) = volta_lanes_combine(lane);

    /* 4: db = N2 over rows (g) */
    volta_lanes_start(lane);
    for (int64_t r = 0; r < R; r++) lane[r % VOLTA_LANES] += volta_row(call, 6, r)[i];
    *volta_element(call, 2, i) = volta_lanes_combine(lane);
  }
  return VOLTA_OK;
}

/* y [R, C], stats [R, 1] = rms_norm(x [R, C], w [C]) */
int volta_rms_norm_ref(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], C = call->operand[0].shape[1];
  const float inverse_c = 1.0f / (float)C, eps = call->step->floats[0];
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r++) {
    float *y = volta_row(call, 0, r);
    const float *x = volta_row(call, 2, r);

    /* 1: rstd = 1 / sqrt(N2(x * x) * (1/C) + eps) */
    float lane[VOLTA_LANES];
    volta_lanes_start(lane);
    for (int64_t c = 0; c < C; c++) lane[c % VOLTA_LANES] += x[c] * x[c];
    const float rstd = 1.0f / VOLTA_SQRT(volta_lanes_combine(lane) * inverse_c + eps);

    /* 2: y = (x * rstd) * w */
    for (int64_t c = 0; c < C; c++) y[c] = (x[c] * rstd) * *volta_element(call, 3, c);
    *volta_entry(call, 1, r, 0) = rstd;
  }
  return VOLTA_OK;
}

/* dx [R, C], dw [C] from x, stats, w and g = dloss/dy.
 * Forward: h = x * rstd; y = h * w. With d = dloss/dh = g * w:
 * dx = (d - h * mean(d * h)) * rstd. */
int volta_rms_norm_grad_ref(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], C = call->operand[0].shape[1];
  const float inverse_c = 1.0f / (float)C;
  int64_t first, last;
  float lane[VOLTA_LANES];

  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r++) {
    float *dx = volta_row(call, 0, r);
    const float *x = volta_row(call, 2, r);
    const float rstd = *volta_entry(call, 3, r, 0);
    const float *g = volta_row(call, 5, r);

    /* 1: c = N2(d * h) * (1/C) */
    volta_lanes_start(lane);
    for (int64_t i = 0; i < C; i++) {
      const float h = x[i] * rstd;
      const float d = g[i] * *volta_element(call, 4, i);
      lane[i % VOLTA_LANES] += d * h;
    }
    const float c = volta_lanes_combine(lane) * inverse_c;

    /* 2: dx = (d - h * c) * rstd */
    for (int64_t i = 0; i < C; i++) {
      const float h = x[i] * rstd;
      const float d = g[i] * *volta_element(call, 4, i);
      dx[i] = (d - h * c) * rstd;
    }
  }

  /* 3: dw = N2 over rows (g * h) */
  volta_share(C, call->thread, call->threads, &first, &last);
  for (int64_t i = first; i < last; i++) {
    volta_lanes_start(lane);
    for (int64_t r = 0; r < R; r++) {
      const float h = volta_row(call, 2, r)[i] * *volta_entry(call, 3, r, 0);
      lane[r % VOLTA_LANES] += volta_row(call, 5, r)[i] * h;
    }
    *volta_element(call, 1, i) = volta_lanes_combine(lane);
  }
  return VOLTA_OK;
}
