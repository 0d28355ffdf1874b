#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-vectorize") /* the plain truth: one element after the other */
#endif
#define VOLTA_ISA ref
#include "../chain.h"

/* Per thread one tile for each temporary and for each input that is not contiguous. */
int64_t volta_chain_workspace(const volta_step *step, const volta_operand *operand, int isa,
                              int threads) {
  volta_chain_plan plan;
  (void)isa;
  if (volta_chain_plan_of(step, operand, &plan) != VOLTA_OK) return 0;
  return (int64_t)threads * plan.tiles * VOLTA_TILE * (int64_t)sizeof(float);
}
