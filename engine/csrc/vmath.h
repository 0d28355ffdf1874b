/* The one definition of every mathematical function, compiled as C, OpenCL C and CUDA C.
 *
 * Contract clauses N0 and N3. Each function is made of + - * / sqrt fma, comparisons, selects and
 * integer operations on float bits, every one of which IEEE-754 defines exactly; so the results are
 * the same bits on every target. What the compiler must promise: binary32 arithmetic rounded to
 * nearest even, subnormals kept, no contraction, no reassociation, correctly rounded / and sqrt.
 *   C        -ffp-contract=off; -fno-math-errno and -fno-trapping-math are harmless, -ffast-math
 *            is not. Without an FMA instruction VOLTA_FMA is a libm call with the same result.
 *   OpenCL   -cl-fp32-correctly-rounded-divide-sqrt, and never -cl-fast-relaxed-math.
 *   CUDA     --fmad=false --ftz=false --prec-div=true --prec-sqrt=true
 *
 * Accuracy: each function is within 2 ulp of the true value for all 2^32 inputs. `max` in a comment
 * is the largest error found by comparing all of them (tests/ops/vmath_sweep.c), in units in the
 * last place of the binade of the true value. A NaN gives a NaN, whose payload is not defined.
 * A slope crosses zero, so there the bound is 2 ulp or 2^-23, whichever is larger.
 *
 * All functions but sin and cos are free of branches, so a plain loop over them vectorises.
 *
 * Coefficients: each polynomial is a weighted minimax fit (Lawson iteration in double over 600
 * Chebyshev nodes, true values from 40-digit arithmetic) of the error named beside it; then the
 * coefficients are rounded to binary32 one by one, lowest power first, and the rest are fitted
 * again after each. "2^-28" is the largest error of the rounded polynomial before evaluation.
 */
#ifndef VOLTA_VMATH_H
#define VOLTA_VMATH_H

#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)
#pragma OPENCL FP_CONTRACT OFF
typedef uint volta_u32;
typedef ulong volta_u64;
typedef long volta_i64;
#define VOLTA_FN static inline
#define VOLTA_TABLE __constant
#define VOLTA_FMA(a, b, c) fma((float)(a), (float)(b), (float)(c))
#define VOLTA_SQRT(x) sqrt((float)(x))
#define VOLTA_ABS(x) fabs((float)(x))
#define VOLTA_BITS(x) as_uint((float)(x))
#define VOLTA_FLOAT(b) as_float((uint)(b))

#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
typedef unsigned int volta_u32;
typedef unsigned long long volta_u64;
typedef long long volta_i64;
#define VOLTA_FN static __device__ __forceinline__
#define VOLTA_TABLE static __device__ const
#define VOLTA_FMA(a, b, c) __fmaf_rn(a, b, c)
#define VOLTA_SQRT(x) __fsqrt_rn(x)
#define VOLTA_ABS(x) fabsf(x)
#define VOLTA_BITS(x) __float_as_uint(x)
#define VOLTA_FLOAT(b) __uint_as_float(b)

#else
#include <stdint.h>
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif
#if defined(__FAST_MATH__)
#error "vmath.h: -ffast-math breaks clause N0"
#endif
typedef uint32_t volta_u32;
typedef uint64_t volta_u64;
typedef int64_t volta_i64;
#define VOLTA_FN static inline
#define VOLTA_TABLE static const
#define VOLTA_FMA(a, b, c) __builtin_fmaf(a, b, c)
#define VOLTA_SQRT(x) __builtin_sqrtf(x)
#define VOLTA_ABS(x) __builtin_fabsf(x)
#define VOLTA_BITS(x) volta_bits(x)
#define VOLTA_FLOAT(b) volta_float(b)

VOLTA_FN volta_u32 volta_bits(float x) {
  volta_u32 b;
  __builtin_memcpy(&b, &x, sizeof b);
  return b;
}

VOLTA_FN float volta_float(volta_u32 b) {
  float x;
  __builtin_memcpy(&x, &b, sizeof x);
  return x;
}
#endif

#define VOLTA_INF VOLTA_FLOAT(0x7f800000u)
#define VOLTA_NAN VOLTA_FLOAT(0x7fc00000u)

/* ln 2 = HI + LO. n * HI of an integer |n| < 2^8 never rounds inside fma(n, -HI, x) when the
 * difference is at most 1/2: both are multiples of 2^-25 then. */
#define VOLTA_LOG2E 1.44269502f
#define VOLTA_LN2_HI 0.693147182f
#define VOLTA_LN2_LO (-1.90465421e-09f)

/* Rounding to an integer: for |t| < 2^22, t + 1.5*2^23 has a last place of 1, so the sum's low bits
 * hold round(t), and subtracting 1.5*2^23 gives it back as a float. Adding a bias B as well leaves
 * round(t) + B in the low 9 bits, whose shift by 23 is the bit pattern of 2^(round(t) + B - 127).
 * SCALED: B = 127 + 64, the pattern of 2^(n+64): serves n in [-190, 0]; the result is multiplied by
 * 2^-64 last, so it rounds once even when it is subnormal. */
#define VOLTA_ROUND_SCALED 12583103.0f
#define VOLTA_UNSCALE 5.42101086e-20f

/* N9: x rounded to bf16, to nearest, ties to even; a NaN becomes the quiet NaN with its sign. */
VOLTA_FN float volta_round_bf16(float x) {
  const volta_u32 b = VOLTA_BITS(x);
  const volta_u32 rounded = (b + 0x7fffu + (b >> 16 & 1u)) & 0xffff0000u;
  const volta_u32 quiet = (b & 0x80000000u) | 0x7fc00000u;
  return VOLTA_FLOAT((b & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* |x| with the sign of s */
VOLTA_FN float volta_copysign(float x, float s) {
  return VOLTA_FLOAT((VOLTA_BITS(x) & 0x7fffffffu) | (VOLTA_BITS(s) & 0x80000000u));
}

/* Q of e^r = 1 + r + r^2 Q(r) on |r| <= ln2/2; e^r relative to 2^-28 */
VOLTA_FN float volta_exp_tail(float r) {
  float p = 0.0013820734f;
  p = VOLTA_FMA(p, r, 0.008368677f);
  p = VOLTA_FMA(p, r, 0.041668266f);
  p = VOLTA_FMA(p, r, 0.16666521f);
  return VOLTA_FMA(p, r, 0.49999994f);
}

/* e^r - 1 and e^r on |r| <= ln2/2 */
VOLTA_FN float volta_reduced_expm1(float r) { return VOLTA_FMA(r * r, volta_exp_tail(r), r); }
VOLTA_FN float volta_reduced_exp(float r) {
  return VOLTA_FMA(VOLTA_FMA(volta_exp_tail(r), r, 1.0f), r, 1.0f);
}

/* (2^r - 1) / r on |r| <= 1/2; 2^r relative to 2^-28 */
VOLTA_FN float volta_exp2m1_ratio(float r) {
  float p = 0.00015327828f;
  p = VOLTA_FMA(p, r, 0.0013390997f);
  p = VOLTA_FMA(p, r, 0.009618503f);
  p = VOLTA_FMA(p, r, 0.055503596f);
  p = VOLTA_FMA(p, r, 0.24022648f);
  return VOLTA_FMA(p, r, 0.6931472f);
}

/* e^x = 2^n e^r, n = round(x log2 e), r = x - n ln 2.
 * 2^n is two factors 2^floor(n/2) 2^ceil(n/2), so that n in [-150, 128] reaches subnormals and
 * overflow with one rounding: the bias in the rounding constant is 2 * 127.
 * exp(-inf) = +0, exp(+inf) = +inf. max 0.90 ulp. */
VOLTA_FN float volta_exp(float x) {
  const float rounder = 12583166.0f; /* 1.5 * 2^23 + 254 */
  float z = x > 89.0f ? 89.0f : x;
  z = z < -104.0f ? -104.0f : z;
  float t = VOLTA_FMA(z, VOLTA_LOG2E, rounder);
  float n = t - rounder;
  float r = VOLTA_FMA(n, -VOLTA_LN2_HI, z);
  r = VOLTA_FMA(n, -VOLTA_LN2_LO, r);
  float p = volta_reduced_exp(r);
  volta_u32 low = (VOLTA_BITS(t) << 22) & 0xff800000u; /* 2^floor(n/2) */
  volta_u32 high = (VOLTA_BITS(t) << 23) - low;        /* 2^ceil(n/2) */
  return p * VOLTA_FLOAT(low) * VOLTA_FLOAT(high);
}

/* ln x = e ln 2 + ln(1+f), x = 2^e (1+f), 1+f in [sqrt(1/2), sqrt 2):
 * ln(1+f) = f - f^2/2 + f^3 P(f), relative to 2^-27.
 * log(+-0) = -inf, log(negative) = NaN, log(+inf) = +inf. max 0.86 ulp. */
VOLTA_FN float volta_log(float x) {
  const volta_u32 sqrt_half = 0x3f3504f3u;
  float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x; /* subnormal: * 2^23, exact */
  float bias = x < 1.17549435e-38f ? 151.0f : 128.0f;
  /* b counts from sqrt(1/2): its exponent field is e + 128, its fraction field that of 1+f */
  volta_u32 b = VOLTA_BITS(scaled) - sqrt_half + 0x40000000u;
  float e = (float)(int)(b >> 23) - bias;
  float f = VOLTA_FLOAT((b & 0x007fffffu) + sqrt_half) - 1.0f;
  float p = -0.07638195f;
  p = VOLTA_FMA(p, f, 0.12764767f);
  p = VOLTA_FMA(p, f, -0.1316019f);
  p = VOLTA_FMA(p, f, 0.14201273f);
  p = VOLTA_FMA(p, f, -0.16623315f);
  p = VOLTA_FMA(p, f, 0.2000125f);
  p = VOLTA_FMA(p, f, -0.25000823f);
  p = VOLTA_FMA(p, f, 0.3333333f);
  float f2 = f * f;
  float y = VOLTA_FMA(f2 * f, p, e * VOLTA_LN2_LO);
  y = VOLTA_FMA(f2, -0.5f, y);
  y = VOLTA_FMA(e, VOLTA_LN2_HI, f + y);
  y = x > 0.0f ? y : (x == 0.0f ? -VOLTA_INF : VOLTA_NAN);
  return x == VOLTA_INF ? x : y;
}

/* tanh x = h / (1 + h) with h = (e^(2|x|) - 1) / 2, and the sign of x.
 * a = min(h, 1) turns it into a - a (a / (1+h)): for h <= 1 that is h - h^2/(1+h), for h > 1 it is
 * 1 - 1/(1+h), and either way the error of the division is damped.
 * h = 2^n q + (2^n - 1) / 2 with q = (e^(2r) - 1) / 2 = r + r^2 Q(r), relative to 2^-26,
 * n = round(2|x| log2 e), r = |x| - n ln2/2 (one part of ln2/2 is enough: the rest, n 2^-30, is
 * damped by 1/(1+h)). tanh(+-inf) = +-1. max 1.86 ulp. */
VOLTA_FN float volta_tanh(float x) {
  const float rounder = 12583039.0f; /* 1.5 * 2^23 + 127 */
  float z = VOLTA_ABS(x);
  z = z > 10.0f ? 10.0f : z;
  float t = VOLTA_FMA(z, 2.88539004f, rounder);
  float n = t - rounder;
  float r = VOLTA_FMA(n, -0.346573591f, z);
  float q = 0.044386104f;
  q = VOLTA_FMA(q, r, 0.13386019f);
  q = VOLTA_FMA(q, r, 0.33333948f);
  q = VOLTA_FMA(q, r, 0.66666186f);
  q = VOLTA_FMA(q, r, 0.99999994f);
  q = VOLTA_FMA(r * r, q, r);
  float s = VOLTA_FLOAT(VOLTA_BITS(t) << 23); /* 2^n */
  float h = VOLTA_FMA(s, q, VOLTA_FMA(s, 0.5f, -0.5f));
  volta_u32 low = VOLTA_BITS(h) < VOLTA_BITS(1.0f) ? VOLTA_BITS(h) : VOLTA_BITS(1.0f);
  float a = VOLTA_FLOAT(low); /* min(h, 1), h >= 0; as integers, so that GCC divides once */
  return volta_copysign(VOLTA_FMA(-a, a / (1.0f + h), a), x);
}

/* 1 / (1 + e^-x). With E = e^-|x| = 2^n (1 + q) it is 1 / (1 + E) for x >= 0 and E / (1 + E) for
 * x < 0: as a - a (E / (1 + E)) with a = 1 or E, which damps the division's error.
 * sigmoid(-inf) = +0. max 1.66 ulp. */
VOLTA_FN float volta_sigmoid(float x) {
  float z = -VOLTA_ABS(x);
  z = z < -104.0f ? -104.0f : z;
  float t = VOLTA_FMA(z, VOLTA_LOG2E, VOLTA_ROUND_SCALED);
  float n = t - VOLTA_ROUND_SCALED;
  float r = VOLTA_FMA(n, -VOLTA_LN2_HI, z);
  r = VOLTA_FMA(n, -VOLTA_LN2_LO, r);
  float q = volta_reduced_expm1(r);
  float s = VOLTA_FLOAT(VOLTA_BITS(t) << 23);
  float e = VOLTA_FMA(s, q, s) * VOLTA_UNSCALE;
  float a = x < 0.0f ? e : 1.0f;
  return VOLTA_FMA(-a, e / (1.0f + e), a);
}

/* x / (1 + E) for x >= 0 and x E / (1 + E) for x < 0, where E = 2^n (1 + q) = e^-|v| for some odd
 * v(x), s = 2^(n+64), and z = min(|x|, some x at which z E rounds to 0).
 * With b = z E / (1 + E) it is x - b for x >= 0 and -b for x < 0; and with a = z E, b is
 * a - a E / (1 + E). a's rounding error is carried along, since near x = 0 that difference is half
 * of a; a_lo is exact, for a is within a factor 2 of z. */
VOLTA_FN float volta_gate(float x, float z, float q, float s) {
  float a = VOLTA_FMA(z, q, z);
  float a_lo = VOLTA_FMA(z, q, z - a);
  float e = VOLTA_FMA(s, q, s) * VOLTA_UNSCALE;
  float ratio = e / (1.0f + e);
  float b = a - VOLTA_FMA(a, ratio, VOLTA_FMA(a_lo, ratio, -a_lo));
  b = b * s * VOLTA_UNSCALE;
  return x < 0.0f ? -b : x - b;
}

/* x sigmoid(x): the gate with v = x. silu(-inf) = -0, the limit. max 1.71 ulp. */
VOLTA_FN float volta_silu(float x) {
  float z = VOLTA_ABS(x);
  z = z > 112.0f ? 112.0f : z; /* silu(-112) rounds to -0 */
  float t = VOLTA_FMA(z, -VOLTA_LOG2E, VOLTA_ROUND_SCALED);
  float n = t - VOLTA_ROUND_SCALED;
  float r = VOLTA_FMA(n, -VOLTA_LN2_HI, -z);
  r = VOLTA_FMA(n, -VOLTA_LN2_LO, r);
  return volta_gate(x, z, volta_reduced_expm1(r), VOLTA_FLOAT(VOLTA_BITS(t) << 23));
}

/* d silu / dx = S + x S (1 - S), S = sigmoid(x). With E = e^-|x| and h = 1 / (1 + E):
 * E h (1 - |x| h) for x < 0, and 1 minus that for x >= 0, since silu(x) - silu(-x) = x.
 * It crosses zero near -1.28: within 2 ulp or 2^-23.
 * max 1.95 units of max(1 ulp, 2^-24). */
VOLTA_FN float volta_silu_slope(float x) {
  float z = VOLTA_ABS(x);
  z = z > 112.0f ? 112.0f : z;
  float t = VOLTA_FMA(z, -VOLTA_LOG2E, VOLTA_ROUND_SCALED);
  float n = t - VOLTA_ROUND_SCALED;
  float r = VOLTA_FMA(n, -VOLTA_LN2_HI, -z);
  r = VOLTA_FMA(n, -VOLTA_LN2_LO, r);
  float p = volta_reduced_exp(r);
  float s = VOLTA_FLOAT(VOLTA_BITS(t) << 23);
  float h = 1.0f / (1.0f + p * s * VOLTA_UNSCALE);
  float y = VOLTA_FMA(-z, h, 1.0f) * (h * p) * s * VOLTA_UNSCALE;
  return x < 0.0f ? y : 1.0f - y;
}

/* x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2: the gate with
 *   |v| log2 e = u = |x| (K0 + K1 x^2), K0 = 2 sqrt(2/pi) log2 e, K1 = 0.044715 K0, E = 2^-u.
 * The tail's relative error is u's absolute error, and u reaches 173: so u is a sum of two floats.
 * K0_HI is a multiple of 2^-20 and K0 + K1 x^2 < 16, so w - K0_HI below is exact.
 * gelu_tanh(-inf) = -0, the limit. max 1.80 ulp. */
#define VOLTA_GELU_K0 2.30220819f
#define VOLTA_GELU_K0_HI 2.30220795f
#define VOLTA_GELU_K0_LO 2.5136697e-07f
#define VOLTA_GELU_K1 0.102943242f
#define VOLTA_GELU_K1_LO (-2.01619854e-09f)

VOLTA_FN float volta_gelu_tanh(float x) {
  float z = VOLTA_ABS(x);
  z = z > 11.25f ? 11.25f : z; /* gelu_tanh(-11.25) rounds to -0 */
  float z2 = z * z;
  float z2_lo = VOLTA_FMA(z, z, -z2);
  float w = VOLTA_FMA(VOLTA_GELU_K1, z2, VOLTA_GELU_K0_HI);
  float w_lo = VOLTA_FMA(VOLTA_GELU_K1_LO, z2, VOLTA_GELU_K0_LO);
  w_lo = VOLTA_FMA(VOLTA_GELU_K1, z2_lo, w_lo);
  w_lo = VOLTA_FMA(VOLTA_GELU_K1, z2, VOLTA_GELU_K0_HI - w) + w_lo;
  float u = z * w;
  float u_lo = VOLTA_FMA(z, w_lo, VOLTA_FMA(z, w, -u));
  float t = VOLTA_ROUND_SCALED - u;
  float n = t - VOLTA_ROUND_SCALED;
  float r = (-u - n) - u_lo;
  return volta_gate(x, z, r * volta_exp2m1_ratio(r), VOLTA_FLOAT(VOLTA_BITS(t) << 23));
}

/* d gelu_tanh / dx = S + x S (1 - S) v', S = sigmoid: as silu_slope, with E = 2^-u and
 * v' = C0 + 3 C1 x^2 in natural units (C0 = 2 sqrt(2/pi), C1 = 0.044715 C0):
 * E h (1 - |x| v' h) for x < 0, and 1 minus that for x >= 0.
 * It crosses zero near -0.75: within 2 ulp or 2^-23.
 * max 1.96 units of max(1 ulp, 2^-24). */
VOLTA_FN float volta_gelu_tanh_slope(float x) {
  float z = VOLTA_ABS(x);
  z = z > 11.25f ? 11.25f : z;
  float z2 = z * z;
  float u = z * VOLTA_FMA(VOLTA_GELU_K1, z2, VOLTA_GELU_K0);
  float t = VOLTA_ROUND_SCALED - u;
  float n = t - VOLTA_ROUND_SCALED;
  float r = -u - n;
  float p = VOLTA_FMA(volta_exp2m1_ratio(r), r, 1.0f);
  float s = VOLTA_FLOAT(VOLTA_BITS(t) << 23);
  float h = 1.0f / (1.0f + p * s * VOLTA_UNSCALE);
  float zdv = z * VOLTA_FMA(0.214064449f, z2, 1.59576917f);
  float y = VOLTA_FMA(-zdv, h, 1.0f) * (h * p) * s * VOLTA_UNSCALE;
  return x < 0.0f ? y : 1.0f - y;
}

/* erf x, by the size of t = |x|:
 *   t < 0.875: x + x P(x^2), relative to 2^-26;
 *   else: +-(1 - e^L(t)), L a fit of ln erfc on [0.875, 4]; 1 - 2^n (1 + q) = (1 - 2^n) - 2^n q,
 *   whose first difference is exact. erf(4) rounds to 1. max 1.02 ulp. */
VOLTA_FN float volta_erf(float x) {
  float x2 = x * x;
  float small = -0.00060571474f;
  small = VOLTA_FMA(small, x2, 0.005004609f);
  small = VOLTA_FMA(small, x2, -0.026773373f);
  small = VOLTA_FMA(small, x2, 0.11281976f);
  small = VOLTA_FMA(small, x2, -0.37612507f);
  small = VOLTA_FMA(small, x2, 0.12837915f);
  small = VOLTA_FMA(small, x, x);
  float z = VOLTA_ABS(x);
  float zc = z > 4.0f ? 4.0f : z;
  float l = 0.00020110201f;
  l = VOLTA_FMA(l, zc, -0.0030933162f);
  l = VOLTA_FMA(l, zc, 0.022424228f);
  l = VOLTA_FMA(l, zc, -0.10433565f);
  l = VOLTA_FMA(l, zc, -0.63672817f);
  l = VOLTA_FMA(l, zc, -1.1279414f);
  l = VOLTA_FMA(l, zc, -0.00013234103f);
  float t = VOLTA_FMA(l, VOLTA_LOG2E, 12583039.0f); /* 1.5 * 2^23 + 127 */
  float n = t - 12583039.0f;
  float r = VOLTA_FMA(n, -VOLTA_LN2_HI, l);
  float s = VOLTA_FLOAT(VOLTA_BITS(t) << 23);
  float large = VOLTA_FMA(volta_reduced_expm1(r), -s, 1.0f - s);
  return z > 0.875f ? volta_copysign(large, x) : small;
}

/* Phi(-t) = e^(-t^2/2) G(t) for t in [0, 14.75], Phi the normal distribution function, where
 *   G(t) = j (p + p_lo) (1 + c), j = 1 / (t + 4) rounded twice:
 *   p + p_lo is a polynomial in 1 - 8 j = (t - 4) / (t + 4) of degree 9, relative to 2^-26. Its
 *   constant is a multiple of 2^-23 plus a rest, so that p's rounding error is exact in p_lo;
 *   c restores what j's roundings lose: j (t + 4) - 1 = -residual changes G by
 *   d ln G / d ln j, about 0.6 + 10.2 j, times as much. */
VOLTA_FN float volta_normal_tail(float t, float *p, float *p_lo, float *c) {
  float d = t + 4.0f;
  float d_lo = t - (d - 4.0f);
  float j = 1.0f / d;
  float residual = VOLTA_FMA(-j, d_lo, VOLTA_FMA(-j, d, 1.0f));
  *c = VOLTA_FMA(j, 10.2f, 0.6f) * residual;
  float s = VOLTA_FMA(j, -8.0f, 1.0f);
  float g = -0.00013499465f;
  g = VOLTA_FMA(g, s, 0.00017129211f);
  g = VOLTA_FMA(g, s, 0.0015654676f);
  g = VOLTA_FMA(g, s, -0.0035090076f);
  g = VOLTA_FMA(g, s, -0.007522148f);
  g = VOLTA_FMA(g, s, 0.060403462f);
  g = VOLTA_FMA(g, s, -0.18652397f);
  g = VOLTA_FMA(g, s, 0.3871369f);
  g = VOLTA_FMA(g, s, -0.60789657f);
  *p = VOLTA_FMA(g, s, 0.755285144f);
  *p_lo = VOLTA_FMA(g, s, 0.755285144f - *p) - 8.54117488e-09f;
  return j;
}

/* x (1 + erf(x / sqrt 2)) / 2 = x Phi(x). With b = |x| Phi(-|x|) it is -b for x < 0 and x - b for
 * x >= 0; b = |x| j p (1 + c) (1 + q) 2^n, with the errors of the products carried in lo.
 * t^2/2 is the exact sum of two floats, since the tail's relative error is its absolute error.
 * gelu_erf(-inf) = -0, the limit. max 1.89 ulp. */
VOLTA_FN float volta_gelu_erf(float x) {
  float z = VOLTA_ABS(x);
  z = z > 14.5f ? 14.5f : z; /* 14.5 Phi(-14.5) rounds to 0 */
  float half_z = 0.5f * z;
  float v = half_z * z;
  float v_lo = VOLTA_FMA(half_z, z, -v);
  float t = VOLTA_FMA(v, -VOLTA_LOG2E, VOLTA_ROUND_SCALED);
  float n = t - VOLTA_ROUND_SCALED;
  float r = VOLTA_FMA(n, -VOLTA_LN2_HI, -v);
  r = VOLTA_FMA(n, -VOLTA_LN2_LO, r - v_lo);
  float q = volta_reduced_expm1(r);
  float s = VOLTA_FLOAT(VOLTA_BITS(t) << 23);
  float p, p_lo, c;
  float j = volta_normal_tail(z, &p, &p_lo, &c);
  float zj = z * j;
  float zj_lo = VOLTA_FMA(z, j, -zj);
  float b = zj * p;
  float lo = VOLTA_FMA(zj_lo, p, VOLTA_FMA(zj, p_lo, VOLTA_FMA(zj, p, -b)));
  float e = 1.0f + q;
  b = b + VOLTA_FMA(b, VOLTA_FMA(c, e, q), lo * e);
  b = b * s * VOLTA_UNSCALE;
  return x < 0.0f ? -b : x - b;
}

/* d gelu_erf / dx = Phi(x) + x phi(x), phi(x) = e^(-x^2/2) / sqrt(2 pi):
 * e^(-t^2/2) (G(t) - t / sqrt(2 pi)) for x = -t < 0, and 1 minus that for x >= 0.
 * It crosses zero near -0.75: within 2 ulp or 2^-23.
 * max 1.85 units of max(1 ulp, 2^-24). */
VOLTA_FN float volta_gelu_erf_slope(float x) {
  float z = VOLTA_ABS(x);
  z = z > 14.75f ? 14.75f : z;
  float v = 0.5f * z * z;
  float t = VOLTA_FMA(v, -VOLTA_LOG2E, VOLTA_ROUND_SCALED);
  float n = t - VOLTA_ROUND_SCALED;
  float r = VOLTA_FMA(n, -VOLTA_LN2_HI, -v);
  r = VOLTA_FMA(n, -VOLTA_LN2_LO, r);
  float e = volta_reduced_exp(r);
  float s = VOLTA_FLOAT(VOLTA_BITS(t) << 23);
  float p, p_lo, c;
  float j = volta_normal_tail(z, &p, &p_lo, &c);
  float g = VOLTA_FMA(j, p, j * VOLTA_FMA(p, c, p_lo));
  float y = VOLTA_FMA(z, -0.398942292f, g) * e * s * VOLTA_UNSCALE;
  return x < 0.0f ? y : 1.0f - y;
}

/* 1 / sqrt(x), two correctly rounded operations. rsqrt(+-0) = +-inf, rsqrt(negative) = NaN,
 * rsqrt(+inf) = +0. max 1.50 ulp. */
VOLTA_FN float volta_rsqrt(float x) { return 1.0f / VOLTA_SQRT(x); }

/* 2/pi = 0.bits, with 32 zero bits before the point, so that every window below lies inside */
VOLTA_TABLE volta_u32 volta_two_over_pi[8] = {
    0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
    0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu,
};

/* |x| = quadrant * pi/2 + r, |r| <= pi/4; returns the quadrant modulo 4 in the low two bits.
 *   |x| < 2^17: three-part pi/2; the first subtraction is exact.
 *   otherwise (Payne and Hanek): |x| = m 2^e, m a 24-bit integer; 96 bits of 2/pi, from the one
 *   whose product with 2^e is 2, times m, give |x| 2/pi modulo 4 as a 64-bit integer * 2^-62. */
VOLTA_FN volta_u32 volta_quadrant(float x, float *r) {
  float z = VOLTA_ABS(x);
  if (z < 131072.0f) {
    float t = VOLTA_FMA(z, 0.636619747f, 12582912.0f); /* 1.5 * 2^23 */
    float n = t - 12582912.0f;
    z = VOLTA_FMA(n, -1.57079637f, z);
    z = VOLTA_FMA(n, 4.37113883e-08f, z);
    *r = VOLTA_FMA(n, 1.71512451e-15f, z);
    return VOLTA_BITS(t);
  }
  volta_u32 b = VOLTA_BITS(z);
  if (b >= 0x7f800000u) {
    *r = VOLTA_NAN; /* inf or NaN */
    return 0u;
  }
  volta_u32 skip = (b >> 23) - 120u; /* e + 30, in [24, 134] */
  volta_u32 shift = skip & 31u;
  volta_u32 i = skip >> 5;
  volta_u64 word0 = volta_two_over_pi[i], word1 = volta_two_over_pi[i + 1u];
  volta_u64 word2 = volta_two_over_pi[i + 2u], word3 = volta_two_over_pi[i + 3u];
  volta_u64 m = (b & 0x007fffffu) | 0x00800000u;
  volta_u64 high = (((word0 << 32) | word1) << shift) >> 32;
  volta_u64 middle = (((word1 << 32) | word2) << shift) >> 32;
  volta_u64 low = (((word2 << 32) | word3) << shift) >> 32;
  volta_u64 turn = ((m * high) << 32) + m * middle + ((m * low) >> 32);
  volta_u64 quadrant = (turn + ((volta_u64)1 << 61)) >> 62;
  volta_u64 rest = turn - (quadrant << 62); /* two's complement, |rest| <= 2^61 */
  int negative = (int)(rest >> 63);
  volta_i64 size = (volta_i64)(negative ? (volta_u64)0 - rest : rest);
  float hi = (float)size;
  float lo = (float)(size - (volta_i64)hi);
  lo = VOLTA_FMA(lo, 3.40612167e-19f, hi * -9.47839643e-27f); /* pi/2 * 2^-62, in two parts */
  hi = VOLTA_FMA(hi, 3.40612167e-19f, lo);
  *r = negative ? -hi : hi;
  return (volta_u32)quadrant;
}

/* sin r = r + r^3 P(r^2), relative to 2^-28; cos r = 1 - r^2/2 + r^4 P(r^2), to 2^-33 */
VOLTA_FN float volta_sin_or_cos(float r, volta_u32 cosine) {
  float r2 = r * r;
  float s = -0.00019517903f;
  s = VOLTA_FMA(s, r2, 0.008332187f);
  s = VOLTA_FMA(s, r2, -0.16666655f);
  s = VOLTA_FMA(r2 * r, s, r);
  float c = 2.4432327e-05f;
  c = VOLTA_FMA(c, r2, -0.001388731f);
  c = VOLTA_FMA(c, r2, 0.041666646f);
  c = VOLTA_FMA(c, r2, -0.5f);
  c = VOLTA_FMA(c, r2, 1.0f);
  return cosine ? c : s;
}

/* sin x by quadrant: sin r, cos r, -sin r, -cos r, and the sign of x.
 * sin(+-0) = +-0, sin(+-inf) = NaN. max 1.54 ulp. */
VOLTA_FN float volta_sin(float x) {
  float r;
  volta_u32 quadrant = volta_quadrant(x, &r);
  volta_u32 y = VOLTA_BITS(volta_sin_or_cos(r, quadrant & 1u));
  return VOLTA_FLOAT(y ^ ((quadrant & 2u) << 30) ^ (VOLTA_BITS(x) & 0x80000000u));
}

/* cos x by quadrant: cos r, -sin r, -cos r, sin r. cos(+-inf) = NaN. max 1.54 ulp. */
VOLTA_FN float volta_cos(float x) {
  float r;
  volta_u32 quadrant = volta_quadrant(x, &r) + 1u;
  volta_u32 y = VOLTA_BITS(volta_sin_or_cos(r, quadrant & 1u));
  return VOLTA_FLOAT(y ^ ((quadrant & 2u) << 30));
}

#endif
