/* ref/embedding.c over blocks of 32. */
#include "../rows.h"
#include "vector.h"

#define FETCHED 1024 /* elements of the gradient that are asked for ahead */
#define TOKENS 1024  /* that are looked at for a thread's own at a time */
#define RUNS 1024    /* of table rows, at most */

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

/* The rows of the table that this thread owns, [*first, *last): neighbours, so that no core asks for a
 * line beside its own that another writes; and as many that each thread has its share of the work, a
 * row to clear or a token to add. Runs of rows are counted together where the table has many. */
static inline void own_rows(const volta_call *call, int64_t *first, int64_t *last) {
  const int64_t V = call->operand[0].shape[0], R = call->operand[1].shape[0];
  int shift = 0;
  while (V >> shift >= RUNS) shift++;
  int64_t tokens[RUNS] = {0};
  if (call->threads > 1)
    for (int64_t r = 0; r < R; r++) tokens[volta_index(call, 2, r) >> shift]++;
  int64_t run = 0, work = 0, bound[2];
  for (int end = 0; end < 2; end++) {
    const int64_t share = (V + R) * (call->thread + end) / call->threads;
    for (; run << shift < V && work < share; run++) work += tokens[run] + ((int64_t)1 << shift);
    bound[end] = run << shift < V ? run << shift : V;
  }
  *first = bound[0], *last = bound[1];
}

/* Adds rows of g to those of the table, for tokens token[0..count-1]. Rows come in any order of the
 * table's, which the hardware does not fetch ahead. */
static inline void add_rows(const volta_call *call, const int64_t *token, int64_t count) {
  const int64_t C = call->operand[0].shape[1], ahead = FETCHED / (C + 1) + 1;
  for (int64_t i = 0; i < count; i++) {
    const int64_t next = token[i + ahead < count ? i + ahead : i];
    float *out = volta_row(call, 0, volta_index(call, 2, token[i]));
    const float *g = volta_row(call, 1, token[i]), *next_g = volta_row(call, 1, next);
    const float *next_out = volta_row(call, 0, volta_index(call, 2, next));
    for (int64_t c = 0; c < C; c += VOLTA_LANES) {
      block_fetch(next_g + c);
      block_fetch(next_out + c);
      const volta_block sum =
          block_add(block_load(out + c, C - c, 0.0f), block_load(g + c, C - c, 0.0f));
      block_store(out + c, sum, C - c);
    }
  }
}

/* Threads divide table rows, so one thread adds to an output in ascending order of tokens, and what it
 * reads of the gradient are whole rows: of halves the hardware would fetch the other half too. */
int VOLTA_ISA_NAME(embedding_grad)(const volta_call *call) {
  const int64_t V = call->operand[0].shape[0], C = call->operand[0].shape[1],
                R = call->operand[1].shape[0];
  const int status = volta_check_indices(call, 2, V, VOLTA_NO_IGNORE);
  if (status != VOLTA_OK) return status;

  int64_t first_row, last_row;
  own_rows(call, &first_row, &last_row);
  for (int64_t v = first_row; v < last_row; v++) {
    float *out = volta_row(call, 0, v);
    for (int64_t c = 0; c < C; c += VOLTA_LANES) block_store(out + c, block_set(0.0f), C - c);
  }
  int64_t mine[TOKENS];
  for (int64_t r = 0; r < R;) {
    const int64_t last = R - r < TOKENS ? R : r + TOKENS;
    int64_t count = 0;
    for (; r < last; r++) {
      const int64_t v = volta_index(call, 2, r);
      mine[count] = r;
      count += v >= first_row && v < last_row;
    }
    add_rows(call, mine, count);
  }
  return VOLTA_OK;
}
