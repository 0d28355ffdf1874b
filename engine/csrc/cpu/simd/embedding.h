/* ref/embedding.c over blocks of 32. */
#include "../rows.h"
#include "vector.h"

#define FETCHED 1024 /* elements of the gradient that are asked for ahead */

int VOLTA_ISA_NAME(embedding)(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], C = call->operand[0].shape[1],
                V = call->operand[1].shape[0];
  const int status = volta_check_indices(call, 2, V, VOLTA_NO_IGNORE);
  if (status != VOLTA_OK) return status;
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r++) {
    float *out = volta_row(call, 0, r);
    const float *row = volta_row(call, 1, volta_index(call, 2, r));
    for (int64_t c = 0; c < C; c += VOLTA_LANES)
      block_store(out + c, block_load(row + c, C - c, 0.0f), C - c);
  }
  return VOLTA_OK;
}

/* Threads divide blocks of channels where there is one for each, and table rows otherwise: then
 * each thread passes over all tokens and takes those of its rows. Either way one thread owns an
 * output and adds to it in ascending order of tokens. */
int VOLTA_ISA_NAME(embedding_grad)(const volta_call *call) {
  const int64_t V = call->operand[0].shape[0], C = call->operand[0].shape[1],
                R = call->operand[1].shape[0];
  const int status = volta_check_indices(call, 2, V, VOLTA_NO_IGNORE);
  if (status != VOLTA_OK) return status;

  const int64_t blocks = (C + VOLTA_LANES - 1) / VOLTA_LANES;
  int64_t first_row = 0, last_row = V, first_block = 0, last_block = blocks;
  if (blocks >= call->threads)
    volta_share(blocks, call->thread, call->threads, &first_block, &last_block);
  else
    volta_share(V, call->thread, call->threads, &first_row, &last_row);
  const int64_t first = first_block * VOLTA_LANES;
  const int64_t last = last_block * VOLTA_LANES < C ? last_block * VOLTA_LANES : C;

  for (int64_t v = first_row; v < last_row; v++) {
    float *out = volta_row(call, 0, v);
    for (int64_t c = first; c < last; c += VOLTA_LANES)
      block_store(out + c, block_set(0.0f), last - c);
  }
  /* parts of rows, in any order of the table's, which the hardware does not fetch ahead */
  const int64_t ahead = FETCHED / (last - first + 1) + 1;
  for (int64_t r = 0; r < R; r++) {
    const int64_t v = volta_index(call, 2, r), next = r + ahead < R ? r + ahead : r;
    if (v < first_row || v >= last_row) continue;
    float *out = volta_row(call, 0, v);
    const float *g = volta_row(call, 1, r), *next_g = volta_row(call, 1, next);
    const float *next_out = volta_row(call, 0, volta_index(call, 2, next));
    for (int64_t c = first; c < last; c += VOLTA_LANES) {
      block_fetch(next_g + c);
      block_fetch(next_out + c);
      const volta_block sum =
          block_add(block_load(out + c, last - c, 0.0f), block_load(g + c, last - c, 0.0f));
      block_store(out + c, sum, last - c);
    }
  }
  return VOLTA_OK;
}
