/* The contractions, plainly.
 *
 *   N1   acc = +0; for k ascending: acc = fma(a[i, k], b[k, j], acc)
 *   N9   k padded with +0 to blocks of 32; acc = +0; for each block: e = o = +0; for its 16 pairs:
 *        e = fma(a[2p], b[2p], e), o = fma(a[2p + 1], b[2p + 1], o); acc = acc + (e + o),
 *        with every subnormal, given or found, taken as the zero of its sign
 *   N10  acc = +0; for each group of k: acc = acc + sum * scale[group, j], where sum is
 *        f32 of the exact integer sum of a * b for int8 a, and N1 over the group for f32 a
 */
#include "../matmul_problem.h"

#include <float.h>
#include <math.h>

int64_t volta_matmul_workspace_ref(const volta_step *step, const volta_operand *operand, int isa,
                                   int threads);
int volta_matmul_ref(const volta_call *call);
int volta_matmul_scaled_ref(const volta_call *call);
int volta_pack_weights_ref(const volta_call *call);

int64_t volta_matmul_workspace_ref(const volta_step *step, const volta_operand *operand, int isa,
                                   int threads) {
  (void)isa;
  if (!volta_matmul_fits(step, operand)) return 0; /* the kernel will refuse it */
  return volta_align(volta_matmul_tiles(step, operand) * VOLTA_TILE * (int64_t)sizeof(float)) *
         threads;
}

/* Element i of a row of f32, bf16 or int8: exact. */
static float element(const char *x, int32_t dtype, int64_t i) {
  if (dtype == VOLTA_BF16) return volta_f32_from_bf16(((const uint16_t *)x)[i]);
  if (dtype == VOLTA_I8) return (float)((const int8_t *)x)[i];
  return ((const float *)x)[i];
}

static float flushed(float x) { return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x; }

/* fma(a, b, c) for a, b in bf16, flushed. A result is subnormal, and flushed, when it is so rounded
 * to 24 bits with any exponent: FLT_MIN itself then stands only for what is at most half a step
 * of that grid, 2^-151, below it. The product of two bf16 is exact in binary64, and `lost` is the
 * exact rounding error of the sum (Knuth's two-sum). */
static float fma_flushed(float a, float b, float c) {
  const float rounded = fmaf(a, b, c);
  if (fabsf(rounded) != FLT_MIN) return flushed(rounded);
  const double product = (double)a * (double)b, addend = (double)c, sum = product + addend;
  const double part = sum - product;
  const double lost = (product - (sum - part)) + (addend - part);
  const double above = fabs(sum) - ((double)FLT_MIN - 0x1p-151);
  const int normal = above > 0 || (above == 0 && (sum > 0 ? lost : -lost) >= 0);
  return normal ? rounded : copysignf(0.0f, rounded);
}

static float add_flushed(float a, float b) { return flushed(a + b); }

typedef struct {
  const char *a, *b;
  int32_t a_dtype, b_dtype;
  int64_t a_cs, b_rs;
} pair;

static float a_at(const pair *x, int64_t k) { return element(x->a, x->a_dtype, k * x->a_cs); }
static float b_at(const pair *x, int64_t k) { return element(x->b, x->b_dtype, k * x->b_rs); }

static float contract(const pair *x, int64_t first, int64_t last) {
  float acc = 0.0f;
  if (x->a_dtype == VOLTA_F32 && x->b_dtype == VOLTA_F32) { /* the same, without asking each time */
    const float *a = (const float *)x->a, *b = (const float *)x->b;
    for (int64_t k = first; k < last; k++) acc = fmaf(a[k * x->a_cs], b[k * x->b_rs], acc);
    return acc;
  }
  for (int64_t k = first; k < last; k++) acc = fmaf(a_at(x, k), b_at(x, k), acc);
  return acc;
}

static float contract_bf16(const pair *x, int64_t depth) {
  float acc = 0.0f;
  for (int64_t block = 0; block < depth; block += 32) {
    float chain[2] = {0.0f, 0.0f};
    for (int64_t k = block; k < block + 32; k++) {
      const float a = k < depth ? flushed(a_at(x, k)) : 0.0f;
      const float b = k < depth ? flushed(b_at(x, k)) : 0.0f;
      chain[k % 2] = fma_flushed(a, b, chain[k % 2]);
    }
    acc = add_flushed(acc, add_flushed(chain[0], chain[1]));
  }
  return acc;
}

static float contract_scaled(const pair *x, int64_t depth, int64_t group, const float *scale,
                             int64_t scale_rs) {
  float acc = 0.0f;
  for (int64_t first = 0; first < depth; first += group, scale += scale_rs) {
    float sum = 0.0f;
    if (x->a_dtype == VOLTA_I8) {
      int32_t exact = 0;
      for (int64_t k = first; k < first + group; k++)
        exact += ((const int8_t *)x->a)[k * x->a_cs] * ((const int8_t *)x->b)[k * x->b_rs];
      sum = (float)exact;
    } else {
      sum = contract(x, first, first + group);
    }
    const float part = sum * *scale;
    acc = acc + part;
  }
  return acc;
}

int volta_matmul_ref(const volta_call *call) {
  if (!volta_matmul_valid(call) || volta_matmul_b_is_packed(call->step))
    return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);
  const volta_matmul_problem p = volta_matmul_read(call->step, call->operand);
  const int64_t own = volta_matmul_workspace_ref(call->step, call->operand, VOLTA_ISA_REF, 1);
  float *tiles = (float *)(call->workspace + own * call->thread);
  pair x = {.a_dtype = call->operand[p.a].dtype,
            .b_dtype = call->operand[p.b].dtype,
            .a_cs = p.a_cs,
            .b_rs = p.b_rs};
  int64_t first, last;
  volta_share(p.outer * p.inner * p.m, call->thread, call->threads, &first, &last);
  for (int64_t row = first; row < last; row++) {
    const int64_t batch = row / p.m, i = row % p.m;
    const char *b = volta_matmul_at(call, &p, p.b, batch);
    float *c = (float *)volta_matmul_at(call, &p, 0, batch) + i * p.c_rs;
    x.a = volta_matmul_at(call, &p, p.a, batch) + i * p.a_rs * volta_itemsize(x.a_dtype);
    for (int64_t j = 0; j < p.n; j++) {
      x.b = b + j * p.b_cs * volta_itemsize(x.b_dtype);
      if (p.scale >= 0)
        c[j] =
            contract_scaled(&x, p.k, p.group, (const float *)call->data[p.scale] + j, p.scale_rs);
      else if (p.kind == VOLTA_CODE_BF16)
        c[j] = contract_bf16(&x, p.k);
      else
        c[j] = contract(&x, 0, p.k);
    }
    volta_matmul_epilogue(call, &p, volta_chain_rows_of[VOLTA_ISA_REF], tiles, batch, i, i + 1, 0,
                          p.n);
  }
  return VOLTA_OK;
}

int volta_matmul_scaled_ref(const volta_call *call) { return volta_matmul_ref(call); }

/* The reference reads B as it is: it has no layout of its own. */
int volta_pack_weights_ref(const volta_call *call) {
  return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);
}
