/* Rotary position embedding: each pair (x1, x2) = (x[i], x[i + D/2]) turns by the angle of row
 * position[b] + t of the tables. */
#include "../attention.h"

int volta_rotary_ref(const volta_call *call) {
  enum { OUT, X, COS, SIN, POSITION };
  const int64_t *shape = call->operand[OUT].shape;
  const int64_t B = shape[0], H = shape[1], T = shape[2], half = shape[3] / 2;
  const int status = volta_check_positions(call, POSITION, T, call->operand[COS].shape[0]);
  if (status != VOLTA_OK) return status;
  int64_t first, last;
  volta_share(B * H * T, call->thread, call->threads, &first, &last);
  for (int64_t row = first; row < last; row++) {
    const int64_t b = row / (H * T), h = row / T % H, t = row % T;
    const int64_t at = volta_position(call, POSITION, b) + t;
    const float *cosine = (const float *)call->data[COS] + at * call->operand[COS].stride[0];
    const float *sine = (const float *)call->data[SIN] + at * call->operand[SIN].stride[0];
    const float *x = volta_row4(call, X, b, h, t);
    float *out = volta_row4(call, OUT, b, h, t);
    for (int64_t i = 0; i < half; i++) {
      const float x1 = x[i], x2 = x[i + half];
      const float s = call->step->ints[0] ? -sine[i] : sine[i];
      out[i] = x1 * cosine[i] - x2 * s;
      out[i + half] = x2 * cosine[i] + x1 * s;
    }
  }
  return VOLTA_OK;
}
