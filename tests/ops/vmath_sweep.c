/* Compares every function of vmath.h with double precision, over any arithmetic progression of the
 * 2^32 floats, and hashes the results so that builds for different targets can be compared.
 *
 *   vmath_sweep list                                  the functions' names
 *   vmath_sweep error  FUNCTION START COUNT STRIDE    worst error, its input, inputs over 2 units
 *   vmath_sweep hash   FUNCTION START COUNT STRIDE    64-bit hash of all (input, result) pairs
 *   vmath_sweep values FUNCTION BITS...               input, result, error of each
 *   vmath_sweep philox C0 C1 C2 C3 K0 K1              one block of the generator
 *   vmath_sweep uniform START COUNT STRIDE            least and greatest volta_uniform, hash
 *   vmath_sweep normal COUNT                          mean, variance, largest size, hash
 *   vmath_sweep pair   A B                            the two normal values of two words
 *
 * BITS, START and the generator's words are hexadecimal, COUNT and STRIDE decimal; input i has
 * the bits START + i * STRIDE modulo 2^32.
 *
 * The unit of error is one ulp of the true value's binade (2^-149 for subnormals). For a slope,
 * which crosses zero, it is max(1 ulp, 2^-24): two units are 2 ulp or 2^-23. A NaN that should not
 * be, or is not where it should be, and a zero of the wrong sign are infinite errors.
 *
 * Double is precise enough for all: a float argument is exact in it, and the worst amplification
 * of its rounding, in the tails of gelu, is below 2^9 * 2^-53. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "philox.h"
#include "vmath.h"

enum { CHUNK = 4096 };

static const double two_root_two_over_pi = 1.5957691216057307118; /* 2 sqrt(2/pi) */
static const double one_over_sqrt_2pi = 0.39894228040143267794;
static const double cubic = 0.044715;

static inline double sigmoid_true(double x) { return 1.0 / (1.0 + exp(-x)); }
static inline double silu_true(double x) {
  double y = x * sigmoid_true(x);
  return x < -1e3 ? -0.0 : y;
}
static inline double gelu_tanh_true(double x) {
  double y = x * sigmoid_true(two_root_two_over_pi * (x + cubic * x * x * x));
  return x < -1e3 ? -0.0 : y;
}
static inline double gelu_erf_true(double x) {
  double y = 0.5 * x * erfc(-x * 0.70710678118654752440);
  return x < -1e3 ? -0.0 : y;
}
static inline double rsqrt_true(double x) { return 1.0 / sqrt(x); }
/* The slopes are 0 or 1 to double precision beyond 10^2 (silu 10^3), where x^3 may overflow. */
static inline double settled(double x, double limit, double y) {
  y = x < -limit ? 0.0 : y;
  return x > limit ? 1.0 : y;
}
static inline double silu_slope_true(double x) {
  double y = sigmoid_true(x);
  return settled(x, 1e3, y + x * y * sigmoid_true(-x));
}
static inline double gelu_tanh_slope_true(double x) {
  double v = two_root_two_over_pi * (x + cubic * x * x * x);
  double dv = two_root_two_over_pi * (1.0 + 3.0 * cubic * x * x);
  double y = sigmoid_true(v);
  return settled(x, 1e2, y + x * dv * y * sigmoid_true(-v));
}
static inline double gelu_erf_slope_true(double x) {
  double phi = exp(-0.5 * x * x) * one_over_sqrt_2pi;
  return settled(x, 1e2, 0.5 * erfc(-x * 0.70710678118654752440) + x * phi);
}

/* name, true value, whether it is a slope */
#define FUNCTIONS(ROW) \
  ROW(exp, exp, 0) \
  ROW(log, log, 0) \
  ROW(tanh, tanh, 0) \
  ROW(sigmoid, sigmoid_true, 0) \
  ROW(erf, erf, 0) \
  ROW(gelu_tanh, gelu_tanh_true, 0) \
  ROW(gelu_erf, gelu_erf_true, 0) \
  ROW(silu, silu_true, 0) \
  ROW(sin, sin, 0) \
  ROW(cos, cos, 0) \
  ROW(rsqrt, rsqrt_true, 0) \
  ROW(gelu_tanh_slope, gelu_tanh_slope_true, 1) \
  ROW(gelu_erf_slope, gelu_erf_slope_true, 1) \
  ROW(silu_slope, silu_slope_true, 1)

/* Plain loops over arrays, so that each target's vector code is what is judged */
#define LOOP(name, truth, slope) \
  static void map_##name(const float *restrict x, float *restrict y) { \
    for (int i = 0; i < CHUNK; ++i) y[i] = volta_##name(x[i]); \
  } \
  static void true_##name(const float *restrict x, double *restrict y) { \
    for (int i = 0; i < CHUNK; ++i) y[i] = truth((double)x[i]); \
  }
FUNCTIONS(LOOP)

struct function {
  const char *name;
  void (*map)(const float *restrict, float *restrict);
  void (*truth)(const float *restrict, double *restrict);
  int slope;
};
#define ENTRY(name, truth, slope) {#name, map_##name, true_##name, slope},
static const struct function functions[] = {FUNCTIONS(ENTRY)};
enum { FUNCTION_COUNT = sizeof functions / sizeof functions[0] };

/* Selects, not branches, so that the loop over it vectorises */
static inline double error_units(float y, double r, int slope) {
  /* An infinite result counts as 2^128, the first float that is not there; beyond, it is right. */
  int overflow = y == INFINITY || y == -INFINITY;
  double found = overflow ? copysign(0x1p128, (double)y) : (double)y;
  double truth = overflow && fabs(r) > 0x1p128 ? copysign(0x1p128, r) : r;
  uint64_t bits;
  memcpy(&bits, &r, sizeof bits);
  uint64_t binade = (bits >> 52) & 0x7ffu; /* biased by 1023 */
  const uint64_t least = slope ? 1023 - 1 : 1023 - 126; /* 2^-24 is one ulp of the binade of 1/2 */
  const uint64_t most = 1023 + 127;
  binade = binade < least ? least : binade;
  binade = binade > most ? most : binade;
  uint64_t scale_bits = (2 * 1023 + 23 - binade) << 52; /* 2^(23 - binade), one over the unit */
  double scale;
  memcpy(&scale, &scale_bits, sizeof scale);
  double e = fabs(found - truth) * scale;
  int wrong_zero = y == 0.0f && !slope && (uint64_t)(volta_bits(y) >> 31) != bits >> 63;
  e = wrong_zero || e != e ? (double)INFINITY : e;
  return y != y && r != r ? 0.0 : e;
}

/* Order does not matter: the sum of a mixed word for each pair (splitmix64's finaliser) */
static uint64_t pair_hash(uint32_t x, float y) {
  uint64_t z = ((uint64_t)x << 32) | (isnan(y) ? 0x7fc00000u : volta_bits(y));
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static int sweep(const struct function *f, int errors, uint32_t start, uint64_t count,
                 uint32_t stride) {
  static float x[CHUNK], y[CHUNK];
  static double r[CHUNK], e[CHUNK];
  double worst = -1.0;
  float worst_x = 0.0f;
  uint64_t over = 0, hash = 0;
  for (uint64_t done = 0; done < count; done += CHUNK) {
    int n = count - done < CHUNK ? (int)(count - done) : CHUNK;
    uint32_t first = start + (uint32_t)done * stride;
    for (uint32_t i = 0; i < CHUNK; ++i) x[i] = volta_float(first + i * stride);
    f->map(x, y);
    if (errors) {
      f->truth(x, r);
      if (f->slope)
        for (int i = 0; i < CHUNK; ++i) e[i] = error_units(y[i], r[i], 1);
      else
        for (int i = 0; i < CHUNK; ++i) e[i] = error_units(y[i], r[i], 0);
      for (int i = 0; i < n; ++i) over += e[i] > 2.0;
      for (int i = 0; i < n; ++i) {
        if (e[i] <= worst) continue;
        worst = e[i];
        worst_x = x[i];
      }
    } else {
      for (int i = 0; i < n; ++i) hash += pair_hash(volta_bits(x[i]), y[i]);
    }
  }
  if (errors)
    printf("%s max %.4f at %08" PRIx32 " (%.9g) over %" PRIu64 " of %" PRIu64 "\n", f->name, worst,
           volta_bits(worst_x), (double)worst_x, over, count);
  else
    printf("%s hash %016" PRIx64 " of %" PRIu64 "\n", f->name, hash, count);
  return 0;
}

static int values(const struct function *f, int n, char **bits) {
  static float x[CHUNK], y[CHUNK];
  static double r[CHUNK];
  if (n > CHUNK) return fprintf(stderr, "vmath_sweep: %d values, at most %d\n", n, CHUNK), 2;
  for (int i = 0; i < n; ++i) x[i] = volta_float((uint32_t)strtoul(bits[i], NULL, 16));
  f->map(x, y);
  f->truth(x, r);
  for (int i = 0; i < n; ++i)
    printf("%08" PRIx32 " %08" PRIx32 " %.4f\n", volta_bits(x[i]), volta_bits(y[i]),
           error_units(y[i], r[i], f->slope));
  return 0;
}

static int philox(char **words) {
  uint32_t w[6];
  for (int i = 0; i < 6; ++i) w[i] = (uint32_t)strtoul(words[i], NULL, 16);
  volta_u32x4 b = volta_philox(w[0], w[1], w[2], w[3], w[4], w[5]);
  printf("%08" PRIx32 " %08" PRIx32 " %08" PRIx32 " %08" PRIx32 "\n", b.v[0], b.v[1], b.v[2],
         b.v[3]);
  return 0;
}

static int uniform(uint32_t start, uint64_t count, uint32_t stride) {
  float least = INFINITY, greatest = -INFINITY;
  uint64_t hash = 0;
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t bits = start + (uint32_t)i * stride;
    float u = volta_uniform(bits);
    least = u < least ? u : least;
    greatest = u > greatest ? u : greatest;
    hash += pair_hash(bits, u);
  }
  printf("least %a greatest %a hash %016" PRIx64 "\n", (double)least, (double)greatest, hash);
  return 0;
}

static int normal(uint64_t count) {
  double sum = 0.0, squares = 0.0;
  float largest = 0.0f;
  uint64_t hash = 0;
  for (uint64_t i = 0; i < count; i += 4) {
    volta_u32x4 b = volta_philox((uint32_t)(i >> 2), 0u, 0u, 0u, 1u, 2u);
    float z[4];
    volta_normal_pair(b.v[0], b.v[1], z, z + 1);
    volta_normal_pair(b.v[2], b.v[3], z + 2, z + 3);
    for (int k = 0; k < 4; ++k) {
      sum += (double)z[k];
      squares += (double)z[k] * (double)z[k];
      if (!(fabsf(z[k]) <= largest)) largest = fabsf(z[k]);
      hash += pair_hash((uint32_t)i + (uint32_t)k, z[k]);
    }
  }
  double mean = sum / (double)count;
  printf("mean %.6f variance %.6f largest %.6f hash %016" PRIx64 "\n", mean,
         squares / (double)count - mean * mean, (double)largest, hash);
  return 0;
}

static int pair(char **words) {
  float z0, z1;
  volta_normal_pair((uint32_t)strtoul(words[0], NULL, 16), (uint32_t)strtoul(words[1], NULL, 16),
                    &z0, &z1);
  printf("%08" PRIx32 " %08" PRIx32 "\n", volta_bits(z0), volta_bits(z1));
  return 0;
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  if (strcmp(mode, "list") == 0 && argc == 2) {
    for (int i = 0; i < FUNCTION_COUNT; ++i) puts(functions[i].name);
    return 0;
  }
  if (strcmp(mode, "philox") == 0 && argc == 8) return philox(argv + 2);
  if (strcmp(mode, "pair") == 0 && argc == 4) return pair(argv + 2);
  if (strcmp(mode, "normal") == 0 && argc == 3) return normal(strtoull(argv[2], NULL, 10));
  if (strcmp(mode, "uniform") == 0 && argc == 5)
    return uniform((uint32_t)strtoul(argv[2], NULL, 16), strtoull(argv[3], NULL, 10),
                   (uint32_t)strtoul(argv[4], NULL, 10));
  int errors = strcmp(mode, "error") == 0, hash = strcmp(mode, "hash") == 0;
  for (int i = 0; i < FUNCTION_COUNT && argc > 2; ++i) {
    if (strcmp(functions[i].name, argv[2]) != 0) continue;
    if ((errors || hash) && argc == 6)
      return sweep(&functions[i], errors, (uint32_t)strtoul(argv[3], NULL, 16),
                   strtoull(argv[4], NULL, 10), (uint32_t)strtoul(argv[5], NULL, 10));
    if (strcmp(mode, "values") == 0) return values(&functions[i], argc - 3, argv + 3);
  }
  fprintf(stderr, "vmath_sweep: no such mode, function or argument count; see the head of %s\n",
          "vmath_sweep.c");
  return 2;
}
