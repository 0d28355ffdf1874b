/* N1, plainly: acc = +0; for k ascending: acc = fma(a[i, k], b[k, j], acc). */
#include "../matmul_problem.h"

#include <math.h>

int64_t volta_matmul_workspace_ref(const volta_step *step, const volta_operand *operand,
                                   int threads);
int volta_matmul_ref(const volta_call *call);

int64_t volta_matmul_workspace_ref(const volta_step *step, const volta_operand *operand,
                                   int threads) {
  if (!volta_matmul_fits(step, operand)) return 0; /* the kernel will refuse it */
  return volta_align(volta_matmul_tiles(step, operand) * VOLTA_TILE * (int64_t)sizeof(float)) *
         threads;
}

int volta_matmul_ref(const volta_call *call) {
  if (!volta_matmul_valid(call)) return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);
  const volta_matmul_problem p = volta_matmul_read(call->step, call->operand);
  const int64_t own = volta_matmul_workspace_ref(call->step, call->operand, 1);
  float *tiles = (float *)(call->workspace + own * call->thread);
  int64_t first, last;
  volta_share(p.outer * p.inner * p.m, call->thread, call->threads, &first, &last);
  for (int64_t row = first; row < last; row++) {
    const int64_t batch = row / p.m, i = row % p.m;
    const float *a = volta_matmul_at(call, &p, p.a, batch) + i * p.a_rs;
    const float *b = volta_matmul_at(call, &p, p.b, batch);
    float *c = volta_matmul_at(call, &p, 0, batch) + i * p.c_rs;
    for (int64_t j = 0; j < p.n; j++) {
      float acc = 0.0f;
      for (int64_t k = 0; k < p.k; k++) acc = fmaf(a[k * p.a_cs], b[k * p.b_rs + j * p.b_cs], acc);
      c[j] = acc;
    }
    volta_matmul_epilogue(call, &p, volta_chain_tile_of[VOLTA_ISA_REF], tiles, batch, i, i + 1, 0,
                          p.n);
  }
  return VOLTA_OK;
}
