/* Dropout and random tensors (N8). Element i takes word i % 4 of the block with counter (i / 4
 * low, i / 4 high, stream, step), so its value depends on nothing but i and the generator. */
#include "../../philox.h"
#include "../../volta.h"

/* rng = (seed low, seed high, step), stream = ints[0] */
static volta_u32x4 block_of(const volta_call *call, int rng_operand, int64_t block) {
  const int32_t *rng = call->data[rng_operand];
  const int64_t stride = call->operand[rng_operand].stride[0];
  return volta_philox((volta_u32)block, (volta_u32)(block >> 32), (volta_u32)call->step->ints[0],
                      (volta_u32)rng[2 * stride], (volta_u32)rng[0], (volta_u32)rng[stride]);
}

int volta_dropout_ref(const volta_call *call) {
  enum { OUT, X, RNG };
  float *out = call->data[OUT];
  const float *x = call->data[X];
  const float p = call->step->floats[0], scale = 1.0f / (1.0f - p);
  int64_t first, last;
  volta_share(volta_numel(&call->operand[OUT]), call->thread, call->threads, &first, &last);
  for (int64_t i = first; i < last; i++)
    out[i] = volta_uniform(block_of(call, RNG, i / 4).v[i % 4]) >= p ? x[i] * scale : 0.0f;
  return VOLTA_OK;
}

int volta_random_ref(const volta_call *call) {
  enum { OUT, RNG };
  float *out = call->data[OUT];
  const float a = call->step->floats[0], b = call->step->floats[1];
  const int normal = (int)call->step->ints[1];
  int64_t first, last;
  volta_share(volta_numel(&call->operand[OUT]), call->thread, call->threads, &first, &last);
  for (int64_t i = first; i < last; i++) {
    const volta_u32x4 block = block_of(call, RNG, i / 4);
    if (normal) {
      const int pair = (int)(i % 4) & 2; /* words (0, 1) give z0, z1; words (2, 3) give z2, z3 */
      float z[2];
      volta_normal_pair(block.v[pair], block.v[pair + 1], &z[0], &z[1]);
      out[i] = a + z[i % 2] * b;
    } else {
      out[i] = a + volta_uniform(block.v[i % 4]) * (b - a);
    }
  }
  return VOLTA_OK;
}
