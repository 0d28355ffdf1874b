/* The key and value cache: rows position[b] .. position[b] + T of every head are replaced. */
#include "../attention.h"

int volta_cache_update_ref(const volta_call *call) {
  enum { CACHE, NEW, POSITION };
  const int64_t *shape = call->operand[NEW].shape;
  const int64_t B = shape[0], G = shape[1], T = shape[2], D = shape[3];
  const int status = volta_check_positions(call, POSITION, T, call->operand[CACHE].shape[2]);
  if (status != VOLTA_OK) return status;
  int64_t first, last;
  volta_share(B * G * T, call->thread, call->threads, &first, &last);
  for (int64_t row = first; row < last; row++) {
    const int64_t b = row / (G * T), g = row / T % G, t = row % T;
    float *to = volta_row4(call, CACHE, b, g, volta_position(call, POSITION, b) + t);
    const float *from = volta_row4(call, NEW, b, g, t);
    const int64_t to_step = call->operand[CACHE].stride[3],
                  from_step = call->operand[NEW].stride[3];
    for (int64_t d = 0; d < D; d++) to[d * to_step] = from[d * from_step];
  }
  return VOLTA_OK;
}
