/* Rows of a table by index, and N7, the scatter-add that is its gradient.
 *
 * R tokens, a table of V rows and C channels. Every index is checked before anything is written: a
 * negative one or one >= V is VOLTA_INDEX_RANGE. */
#include "../rows.h"

/* out [R, C] = table[indices]; threads divide the tokens. */
int volta_embedding_ref(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], C = call->operand[0].shape[1],
                V = call->operand[1].shape[0];
  const int status = volta_check_indices(call, 2, V, VOLTA_NO_IGNORE);
  if (status != VOLTA_OK) return status;
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r++) {
    float *out = volta_row(call, 0, r);
    const float *row = volta_row(call, 1, volta_index(call, 2, r));
    for (int64_t c = 0; c < C; c++) out[c] = row[c];
  }
  return VOLTA_OK;
}

/* out [V, C] = +0, then out[indices[r]] += g[r] for r ascending; threads divide the channels. */
int volta_embedding_grad_ref(const volta_call *call) {
  const int64_t V = call->operand[0].shape[0], C = call->operand[0].shape[1],
                R = call->operand[1].shape[0];
  const int status = volta_check_indices(call, 2, V, VOLTA_NO_IGNORE);
  if (status != VOLTA_OK) return status;
  int64_t first, last;
  volta_share(C, call->thread, call->threads, &first, &last);
  for (int64_t v = 0; v < V; v++) {
    float *out = volta_row(call, 0, v);
    for (int64_t c = first; c < last; c++) out[c] = 0.0f;
  }
  for (int64_t r = 0; r < R; r++) {
    float *out = volta_row(call, 0, volta_index(call, 2, r));
    const float *g = volta_row(call, 1, r);
    for (int64_t c = first; c < last; c++) out[c] += g[c];
  }
  return VOLTA_OK;
}
