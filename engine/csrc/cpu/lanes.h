/* N2, the reduction, in plain C: every sum over an axis goes through the 32 lanes defined here.
 *
 *   lane[0..31] = +0
 *   for i ascending:  lane[i % 32] += x[i]
 *   for w in 16, 8, 4, 2, 1:  for j < w:  lane[j] += lane[j + w]
 *   the sum is lane[0]
 *
 * The vector versions rely on one consequence: a lane is never -0, for it starts at +0, and
 * (+0) + (-0) = +0. So adding +0 to a lane that has no element changes nothing, and a tail may be
 * padded with +0.
 */
#ifndef VOLTA_LANES_H
#define VOLTA_LANES_H

#include <math.h>

#include "../volta.h"

static inline void volta_lanes_start(float lane[VOLTA_LANES]) {
  for (int j = 0; j < VOLTA_LANES; j++) lane[j] = 0.0f;
}

/* Overwrites the lanes. */
static inline float volta_lanes_combine(float lane[VOLTA_LANES]) {
  for (int width = VOLTA_LANES / 2; width > 0; width /= 2)
    for (int j = 0; j < width; j++) lane[j] += lane[j + width];
  return lane[0];
}

/* N2 of x[0], x[stride], ..., x[(count - 1) * stride]; an empty sum is +0. */
static inline float volta_lanes_sum(const float *x, int64_t count, int64_t stride) {
  float lane[VOLTA_LANES];
  volta_lanes_start(lane);
  for (int64_t i = 0; i < count; i++) lane[i % VOLTA_LANES] += x[i * stride];
  return volta_lanes_combine(lane);
}

/* The m of N4: starts at -inf, ignores NaN (the sum of exp(x - m) does not), and is never -0: the
 * maximum of zeros is +0 whatever their signs, so that it does not depend on their order. */
static inline float volta_row_max(const float *x, int64_t count, int64_t stride) {
  float m = -INFINITY;
  for (int64_t i = 0; i < count; i++) m = x[i * stride] > m ? x[i * stride] : m;
  return m + 0.0f;
}

#endif
