/* Attention and its gradient (N5), one query row after the other.
 *
 *   s_j = N1(q_t, k_j) * scale       over the visible keys j
 *   m = max s;  e_j = exp(s_j - m);  i = 1 / N2(e);  p_j = e_j * i
 *   o = N1 over j (p, v);  stats = (m, i)
 */
#include "../attention.h"

#include <math.h>

#include "../../vmath.h"
#include "../lanes.h"

/* N1 over D of two rows. */
static float dot(const float *a, const float *b, int64_t D) {
  float sum = 0.0f;
  for (int64_t d = 0; d < D; d++) sum = VOLTA_FMA(a[d], b[d], sum);
  return sum;
}

/* sum[d] = fma(factor, x[d], sum[d]): one step of a contraction for each of D outputs. */
static void accumulate(float *sum, float factor, const float *x, int64_t D) {
  for (int64_t d = 0; d < D; d++) sum[d] = VOLTA_FMA(factor, x[d], sum[d]);
}

static void fill_zero(float *x, int64_t D) {
  for (int64_t d = 0; d < D; d++) x[d] = 0.0f;
}

/* One row of S probabilities per thread. */
int64_t volta_attention_workspace_ref(const volta_step *step, const volta_operand *operand, int isa,
                                      int threads) {
  (void)step, (void)isa;
  return threads * volta_align(operand[ATTENTION_K].shape[2] * (int64_t)sizeof(float));
}

int volta_attention_ref(const volta_call *call) {
  volta_attention_shape shape = volta_attention_shape_of(call->step, &call->operand[ATTENTION_Q],
                                                         &call->operand[ATTENTION_K]);
  if (shape.causal) {
    int status = volta_check_positions(call, ATTENTION_POSITION, shape.T, shape.S);
    if (status != VOLTA_OK) return status;
  }
  float *p =
      (float *)(call->workspace + call->thread * volta_align(shape.S * (int64_t)sizeof(float)));
  int64_t first, last;
  volta_share(shape.B * shape.H * shape.T, call->thread, call->threads, &first, &last);
  for (int64_t row = first; row < last; row++) {
    int64_t b = row / (shape.H * shape.T), h = row / shape.T % shape.H, t = row % shape.T;
    int64_t g = h / shape.group;
    int64_t visible = volta_visible(&shape, volta_position(call, ATTENTION_POSITION, b), t);
    const float *q = volta_row4(call, ATTENTION_Q, b, h, t);
    for (int64_t j = 0; j < visible; j++)
      p[j] = dot(q, volta_row4(call, ATTENTION_K, b, g, j), shape.D) * shape.scale;
    float m = volta_row_max(p, visible, 1);
    for (int64_t j = 0; j < visible; j++) p[j] = volta_exp(p[j] - m);
    float inverse = 1.0f / volta_lanes_sum(p, visible, 1);
    float *o = volta_row4(call, ATTENTION_O, b, h, t);
    fill_zero(o, shape.D);
    for (int64_t j = 0; j < visible; j++)
      accumulate(o, p[j] * inverse, volta_row4(call, ATTENTION_V, b, g, j), shape.D);
    float *stats = volta_row4(call, ATTENTION_STATS, b, h, t);
    stats[0] = m;
    stats[1] = inverse;
  }
  return VOLTA_OK;
}

/* delta_t = N2 over D (g * o). */
static float row_delta(const float *g, const float *o, int64_t D) {
  float lane[VOLTA_LANES];
  volta_lanes_start(lane);
  for (int64_t d = 0; d < D; d++) lane[d % VOLTA_LANES] += g[d] * o[d];
  return volta_lanes_combine(lane);
}

int64_t volta_attention_grad_workspace_ref(const volta_step *step, const volta_operand *operand,
                                           int isa, int threads) {
  (void)step, (void)operand, (void)isa, (void)threads;
  return 0;
}

/*   p_j = exp(s_j - m) * i;  dp_j = N1(g_t, v_j);  ds_j = (p_j * (dp_j - delta_t)) * scale
 *   dq_t = N1 over j (ds, k);  dk_j = N1 over (head, t) (ds, q);  dv_j = N1 over (head, t) (p, g)
 *
 * One key head of one batch row is the unit: it owns dk and dv, and walks its queries in the
 * order of their contraction. */
int volta_attention_grad_ref(const volta_call *call) {
  volta_attention_shape shape = volta_attention_shape_of(
      call->step, &call->operand[ATTENTION_GRAD_Q], &call->operand[ATTENTION_GRAD_K]);
  if (shape.causal) {
    int status = volta_check_positions(call, ATTENTION_GRAD_POSITION, shape.T, shape.S);
    if (status != VOLTA_OK) return status;
  }
  int64_t first, last;
  volta_share(shape.B * shape.G, call->thread, call->threads, &first, &last);
  for (int64_t unit = first; unit < last; unit++) {
    int64_t b = unit / shape.G, g = unit % shape.G;
    for (int64_t j = 0; j < shape.S; j++) {
      fill_zero(volta_row4(call, ATTENTION_GRAD_DK, b, g, j), shape.D);
      fill_zero(volta_row4(call, ATTENTION_GRAD_DV, b, g, j), shape.D);
    }
    for (int64_t h = g * shape.group; h < (g + 1) * shape.group; h++)
      for (int64_t t = 0; t < shape.T; t++) {
        int64_t visible =
            volta_visible(&shape, volta_position(call, ATTENTION_GRAD_POSITION, b), t);
        const float *q = volta_row4(call, ATTENTION_GRAD_Q, b, h, t);
        const float *grad = volta_row4(call, ATTENTION_GRAD_G, b, h, t);
        const float *stats = volta_row4(call, ATTENTION_GRAD_STATS, b, h, t);
        float delta = row_delta(grad, volta_row4(call, ATTENTION_GRAD_O, b, h, t), shape.D);
        float *dq = volta_row4(call, ATTENTION_GRAD_DQ, b, h, t);
        fill_zero(dq, shape.D);
        for (int64_t j = 0; j < visible; j++) {
          const float *k = volta_row4(call, ATTENTION_GRAD_K, b, g, j);
          float p = volta_exp(dot(q, k, shape.D) * shape.scale - stats[0]) * stats[1];
          float dp = dot(grad, volta_row4(call, ATTENTION_GRAD_V, b, g, j), shape.D);
          float ds = (p * (dp - delta)) * shape.scale;
          accumulate(dq, ds, k, shape.D);
          accumulate(volta_row4(call, ATTENTION_GRAD_DK, b, g, j), ds, q, shape.D);
          accumulate(volta_row4(call, ATTENTION_GRAD_DV, b, g, j), p, grad, shape.D);
        }
      }
  }
  return VOLTA_OK;
}
