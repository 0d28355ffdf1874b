#include "norm_partials.h"

/* dw and db; the same for any number of threads */
int64_t volta_layer_norm_grad_workspace(const volta_step *step, const volta_operand *operand,
                                        int isa, int threads) {
  (void)step, (void)isa, (void)threads;
  return 2 * VOLTA_LANES * volta_partial_bytes(operand[0].shape[1]);
}

/* dw */
int64_t volta_rms_norm_grad_workspace(const volta_step *step, const volta_operand *operand, int isa,
                                      int threads) {
  (void)step, (void)isa, (void)threads;
  return VOLTA_LANES * volta_partial_bytes(operand[0].shape[1]);
}
