/* Dropout and random tensors by runs of counters; cpu/ref/random.c says what they compute. */
#ifndef VOLTA_SIMD_RANDOM_H
#define VOLTA_SIMD_RANDOM_H

#include "../../philox.h"
#include "vector.h"

#define RANDOM_RUN 64 /* blocks of four elements that are drawn together */

/* The generator of one call: words come from blocks with counter (block, stream, step). */
typedef struct {
  volta_u32 seed_low, seed_high, stream, step;
} random_source;

static random_source random_source_of(const volta_call *call, int rng_operand) {
  const int32_t *rng = call->data[rng_operand];
  const int64_t stride = call->operand[rng_operand].stride[0];
  return (random_source){(volta_u32)rng[0], (volta_u32)rng[stride], (volta_u32)call->step->ints[0],
                         (volta_u32)rng[2 * stride]};
}

/* word[w][k] = word w of block first + k: apart, so that the compiler can give each word its
 * register. */
static void random_words(const random_source *source, int64_t first,
                         volta_u32 word[4][RANDOM_RUN]) {
  for (int k = 0; k < RANDOM_RUN; k++) {
    word[0][k] = (volta_u32)(first + k);
    word[1][k] = (volta_u32)((first + k) >> 32);
  }
  const volta_u32 stream = source->stream, step = source->step, low = source->seed_low,
                  high = source->seed_high;
  for (int k = 0; k < RANDOM_RUN; k++) {
    const volta_u32x4 block = volta_philox(word[0][k], word[1][k], stream, step, low, high);
    word[0][k] = block.v[0];
    word[1][k] = block.v[1];
    word[2][k] = block.v[2];
    word[3][k] = block.v[3];
  }
}

static void random_uniforms(const random_source *source, int64_t first, float u[4 * RANDOM_RUN]) {
  volta_u32 word[4][RANDOM_RUN];
  random_words(source, first, word);
  for (int k = 0; k < RANDOM_RUN; k++)
    for (int w = 0; w < 4; w++) u[4 * k + w] = volta_uniform(word[w][k]);
}

static void random_normals(const random_source *source, int64_t first, float z[4 * RANDOM_RUN]) {
  volta_u32 word[4][RANDOM_RUN];
  random_words(source, first, word);
  for (int k = 0; k < RANDOM_RUN; k++) {
    volta_normal_pair(word[0][k], word[1][k], &z[4 * k], &z[4 * k + 1]);
    volta_normal_pair(word[2][k], word[3][k], &z[4 * k + 2], &z[4 * k + 3]);
  }
}

int VOLTA_ISA_NAME(dropout)(const volta_call *call) {
  enum { OUT, X, RNG };
  float *out = call->data[OUT];
  const float *x = call->data[X];
  const random_source source = random_source_of(call, RNG);
  const float p = call->step->floats[0], scale = 1.0f / (1.0f - p);
  const int64_t count = volta_numel(&call->operand[OUT]), run = 4 * RANDOM_RUN;
  int64_t first, last;
  volta_share((count + run - 1) / run, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r++) {
    const int64_t start = r * run, n = count - start < run ? count - start : run;
    float u[4 * RANDOM_RUN];
    random_uniforms(&source, r * RANDOM_RUN, u);
    for (int64_t i = 0; i < n; i++) {
      const float kept = x[start + i] * scale;
      out[start + i] = u[i] >= p ? kept : 0.0f;
    }
  }
  return VOLTA_OK;
}

int VOLTA_ISA_NAME(random)(const volta_call *call) {
  enum { OUT, RNG };
  float *out = call->data[OUT];
  const random_source source = random_source_of(call, RNG);
  const int normal = (int)call->step->ints[1];
  const float a = call->step->floats[0], b = call->step->floats[1];
  const float factor = normal ? b : b - a;
  const int64_t count = volta_numel(&call->operand[OUT]), run = 4 * RANDOM_RUN;
  int64_t first, last;
  volta_share((count + run - 1) / run, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r++) {
    const int64_t start = r * run, n = count - start < run ? count - start : run;
    float x[4 * RANDOM_RUN];
    if (normal)
      random_normals(&source, r * RANDOM_RUN, x);
    else
      random_uniforms(&source, r * RANDOM_RUN, x);
    for (int64_t i = 0; i < n; i++) out[start + i] = a + x[i] * factor;
  }
  return VOLTA_OK;
}

#endif
