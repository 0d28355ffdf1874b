/* Philox4x32-10, the counter-based generator of clause N8 (Salmon, Moraes, Dror, Shaw, "Parallel
 * random numbers: as easy as 1, 2, 3", SC 2011), as C, OpenCL C and CUDA C. A block is a pure
 * function of (counter, key), so any element of any stream can be drawn alone. */
#ifndef VOLTA_PHILOX_H
#define VOLTA_PHILOX_H

#include "vmath.h"

typedef struct {
  volta_u32 v[4];
} volta_u32x4;

/* Ten rounds of
 *   (c0, c1, c2, c3) <- (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0));
 * between rounds the key goes up by the fractions of the golden ratio and sqrt 3 in 2^-32. */
VOLTA_FN volta_u32x4 volta_philox(volta_u32 c0, volta_u32 c1, volta_u32 c2, volta_u32 c3,
                                  volta_u32 k0, volta_u32 k1) {
  for (int round = 0; round < 10; ++round) {
    volta_u64 p0 = (volta_u64)0xd2511f53u * c0;
    volta_u64 p1 = (volta_u64)0xcd9e8d57u * c2;
    c0 = (volta_u32)(p1 >> 32) ^ c1 ^ k0;
    c1 = (volta_u32)p1;
    c2 = (volta_u32)(p0 >> 32) ^ c3 ^ k1;
    c3 = (volta_u32)p0;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  volta_u32x4 block;
  block.v[0] = c0;
  block.v[1] = c1;
  block.v[2] = c2;
  block.v[3] = c3;
  return block;
}

/* The top 24 bits as a multiple of 2^-24 in [0, 1): exact */
VOLTA_FN float volta_uniform(volta_u32 bits) { return (float)(int)(bits >> 8) * 5.96046448e-08f; }

/* Box and Muller: two independent normal values sqrt(-2 ln u1) (cos, sin)(2 pi u2).
 * u1 = (top 24 bits of a + 1) 2^-24 is in (0, 1], so the logarithm is finite and |z| < 5.77. */
VOLTA_FN void volta_normal_pair(volta_u32 a, volta_u32 b, float *z0, float *z1) {
  float u1 = (float)(int)((a >> 8) + 1u) * 5.96046448e-08f;
  float radius = VOLTA_SQRT(0.0f - 2.0f * volta_log(u1));
  float angle = 6.28318548f * volta_uniform(b);
  *z0 = radius * volta_cos(angle);
  *z1 = radius * volta_sin(angle);
}

#endif
