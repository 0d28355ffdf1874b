/* ref/loss.c over blocks of 32, with row_max and row_sum_exp of softmax.h, which comes before it.
 * Ignored rows are left out of every pass, as in the reference. */
int VOLTA_ISA_NAME(cross_entropy)(const volta_call *call) {
  const int64_t R = call->operand[1].shape[0], V = call->operand[1].shape[1], group = row_group(V);
  const int64_t ignore = call->step->ints[0];
  const int status = volta_check_indices(call, 2, V, ignore);
  if (status != VOLTA_OK) return status;
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r += group) {
    const int64_t rows = last - r < group ? last - r : group;
    float m[VOLTA_ROW_GROUP], s[VOLTA_ROW_GROUP] = {0};

    /* 1: m = max x */
    for (int64_t k = 0; k < rows; k++)
      if (volta_index(call, 2, r + k) != ignore) m[k] = row_max(volta_row(call, 1, r + k), V);

    /* 2: s = N2(exp(x - m)) */
    for (int64_t k = 0; k < rows; k++)
      if (volta_index(call, 2, r + k) != ignore)
        s[k] = row_sum_exp(NULL, volta_row(call, 1, r + k), V, m[k],
                           volta_next_row(call, 1, r + k, group, last));

    /* 3: loss = log(s) - (x[target] - m) */
    group_log(s);
    for (int64_t k = 0; k < rows; k++) {
      const int32_t target = volta_index(call, 2, r + k);
      float *loss = volta_element(call, 0, r + k);
      *loss = target == ignore ? 0.0f : s[k] - (volta_row(call, 1, r + k)[target] - m[k]);
    }
  }
  return VOLTA_OK;
}

int VOLTA_ISA_NAME(cross_entropy_grad)(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], V = call->operand[0].shape[1], group = row_group(V);
  const int64_t ignore = call->step->ints[0];
  const int status = volta_check_indices(call, 2, V, ignore);
  if (status != VOLTA_OK) return status;
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r += group) {
    const int64_t rows = last - r < group ? last - r : group;
    float m[VOLTA_ROW_GROUP], s[VOLTA_ROW_GROUP];

    /* 1: m = max x */
    for (int64_t k = 0; k < rows; k++)
      if (volta_index(call, 2, r + k) != ignore) m[k] = row_max(volta_row(call, 1, r + k), V);

    /* 2: e = exp(x - m), kept in the output row; s = N2(e) */
    for (int64_t k = 0; k < rows; k++)
      if (volta_index(call, 2, r + k) != ignore)
        s[k] = row_sum_exp(volta_row(call, 0, r + k), volta_row(call, 1, r + k), V, m[k],
                           volta_next_row(call, 1, r + k, group, last));

    /* 3: p = e * (1 / s); dx = (p - onehot) * g, where p - 0 is p everywhere but at the target */
    for (int64_t k = 0; k < rows; k++) {
      float *dx = volta_row(call, 0, r + k);
      const int32_t target = volta_index(call, 2, r + k);
      if (target == ignore) {
        for (int64_t i = 0; i < V; i += VOLTA_LANES) block_store(dx + i, block_set(0.0f), V - i);
        continue;
      }
      const float inverse = 1.0f / s[k], g = *volta_element(call, 3, r + k);
      const float at_target = (dx[target] * inverse - 1.0f) * g;
      const volta_block inverses = block_set(inverse), gs = block_set(g);
      for (int64_t i = 0; i < V; i += VOLTA_LANES) {
        const volta_block p = block_mul(block_load(dx + i, V - i, 0.0f), inverses);
        block_store(dx + i, block_mul(p, gs), V - i);
      }
      dx[target] = at_target;
    }
  }
  return VOLTA_OK;
}
