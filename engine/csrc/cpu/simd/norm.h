/* ref/norm.c over blocks of 32.
 *
 * The gradients read each row once for both of their results. dw and db are N2 over rows: row r
 * belongs to lane r % 32. So threads divide the *lanes*: one takes all rows of a few lanes in
 * ascending order, computes their dx, and meanwhile keeps the lanes' partial sums, C floats each,
 * in its cache. When all lanes are done, threads divide the channels and combine the 32 partial
 * sums of each. */
#include "../norm_partials.h"
#include "../rows.h"
#include "../targets.h"
#include "vector.h"

/* --- forward --------------------------------------------------------------------------------- */
VOLTA_INLINE int layer_norm(const volta_call *call, int whole) {
  const int64_t R = call->operand[0].shape[0], C = call->operand[0].shape[1], group = row_group(C);
  const float inverse_c = 1.0f / (float)C, eps = call->step->floats[0];
  const float *w = volta_element(call, 3, 0), *b = volta_element(call, 4, 0);
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r += group) {
    const int64_t rows = last - r < group ? last - r : group;
    float mean[VOLTA_ROW_GROUP], rstd[VOLTA_ROW_GROUP];

    /* 1: mean = N2(x) * (1/C) */
    for (int64_t k = 0; k < rows; k++) {
      const float *x = volta_row(call, 2, r + k);
      volta_block lanes = block_set(0.0f);
      for (int64_t c = 0; c < C; c += VOLTA_LANES)
        lanes = block_add(lanes, block_load(x + c, block_size(C - c, whole), 0.0f));
      mean[k] = block_sum(lanes) * inverse_c;
    }

    /* 2: var = N2((x - mean)^2) * (1/C); rstd = 1 / sqrt(var + eps) */
    for (int64_t k = 0; k < rows; k++) {
      const float *x = volta_row(call, 2, r + k);
      const volta_block means = block_set(mean[k]);
      volta_block lanes = block_set(0.0f);
      for (int64_t c = 0; c < C; c += VOLTA_LANES) {
        const int64_t n = block_size(C - c, whole);
        const volta_block centered = block_sub(block_load(x + c, n, 0.0f), means);
        lanes = block_add(lanes, block_keep(block_mul(centered, centered), n));
      }
      rstd[k] = 1.0f / VOLTA_SQRT(block_sum(lanes) * inverse_c + eps);
    }

    /* 3: y = ((x - mean) * rstd) * w + b */
    for (int64_t k = 0; k < rows; k++) {
      float *y = volta_row(call, 0, r + k);
      const float *x = volta_row(call, 2, r + k),
                  *next = volta_next_row(call, 2, r + k, group, last);
      const volta_block means = block_set(mean[k]), rstds = block_set(rstd[k]);
      for (int64_t c = 0; c < C; c += VOLTA_LANES) {
        const int64_t n = block_size(C - c, whole);
        block_fetch(next + c);
        const volta_block h = block_mul(block_sub(block_load(x + c, n, 0.0f), means), rstds);
        const volta_block hw = block_mul(h, block_load(w + c, n, 0.0f));
        block_store(y + c, block_add(hw, block_load(b + c, n, 0.0f)), n);
      }
      *volta_entry(call, 1, r + k, 0) = mean[k];
      *volta_entry(call, 1, r + k, 1) = rstd[k];
    }
  }
  return VOLTA_OK;
}

int VOLTA_ISA_NAME(layer_norm)(const volta_call *call) {
  if (volta_last_stride(call, 3) != 1 || volta_last_stride(call, 4) != 1)
    return volta_layer_norm_ref(call);
  return call->operand[0].shape[1] % VOLTA_LANES == 0 ? layer_norm(call, 1) : layer_norm(call, 0);
}

VOLTA_INLINE int rms_norm(const volta_call *call, int whole) {
  const int64_t R = call->operand[0].shape[0], C = call->operand[0].shape[1], group = row_group(C);
  const float inverse_c = 1.0f / (float)C, eps = call->step->floats[0];
  const float *w = volta_element(call, 3, 0);
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r += group) {
    const int64_t rows = last - r < group ? last - r : group;
    float rstd[VOLTA_ROW_GROUP];

    /* 1: rstd = 1 / sqrt(N2(x * x) * (1/C) + eps) */
    for (int64_t k = 0; k < rows; k++) {
      const float *x = volta_row(call, 2, r + k);
      volta_block lanes = block_set(0.0f);
      for (int64_t c = 0; c < C; c += VOLTA_LANES) {
        const int64_t n = block_size(C - c, whole);
        const volta_block block = block_load(x + c, n, 0.0f);
        lanes = block_add(lanes, block_mul(block, block));
      }
      rstd[k] = 1.0f / VOLTA_SQRT(block_sum(lanes) * inverse_c + eps);
    }

    /* 2: y = (x * rstd) * w */
    for (int64_t k = 0; k < rows; k++) {
      float *y = volta_row(call, 0, r + k);
      const float *x = volta_row(call, 2, r + k),
                  *next = volta_next_row(call, 2, r + k, group, last);
      const volta_block rstds = block_set(rstd[k]);
      for (int64_t c = 0; c < C; c += VOLTA_LANES) {
        const int64_t n = block_size(C - c, whole);
        block_fetch(next + c);
        const volta_block h = block_mul(block_load(x + c, n, 0.0f), rstds);
        block_store(y + c, block_mul(h, block_load(w + c, n, 0.0f)), n);
      }
      *volta_entry(call, 1, r + k, 0) = rstd[k];
    }
  }
  return VOLTA_OK;
}

int VOLTA_ISA_NAME(rms_norm)(const volta_call *call) {
  if (volta_last_stride(call, 3) != 1) return volta_rms_norm_ref(call);
  return call->operand[0].shape[1] % VOLTA_LANES == 0 ? rms_norm(call, 1) : rms_norm(call, 0);
}

/* --- backward -------------------------------------------------------------------------------- */
static inline void start_partial(const volta_call *call, int which, int64_t lane) {
  float *sums = volta_partial(call, which, lane);
  for (int64_t c = 0; c < call->operand[0].shape[1]; c++) sums[c] = 0.0f;
}

/* out[c] = the lanes' partial sums of channel c, combined, for this thread's share of the
 * channels. */
static inline void combine_partials(const volta_call *call, int which, float *out) {
  const int64_t C = call->operand[0].shape[1];
  const int64_t blocks = (C + VOLTA_LANES - 1) / VOLTA_LANES;
  int64_t first, last;
  volta_share(blocks, call->thread, call->threads, &first, &last);
  for (int64_t c = first * VOLTA_LANES; c < C && c < last * VOLTA_LANES; c += VOLTA_LANES) {
    volta_block lane[VOLTA_LANES / 2];
    for (int j = 0; j < VOLTA_LANES / 2; j++)
      lane[j] =
          block_add(block_load(volta_partial(call, which, j) + c, C - c, 0.0f),
                    block_load(volta_partial(call, which, j + VOLTA_LANES / 2) + c, C - c, 0.0f));
    for (int width = VOLTA_LANES / 4; width > 0; width /= 2)
      for (int j = 0; j < width; j++) lane[j] = block_add(lane[j], lane[j + width]);
    block_store(out + c, lane[0], C - c);
  }
}

/* Bytes of partial sums that a thread keeps at a time: they stay in L2 beside the rows. */
#define PARTIALS_BYTES (256 << 10)

/* Rows r .. r + count - 1, the first of which belongs to `lane`; a pair takes the next row of each one's
 * lane, r + 32 .., with it: so the lane's partial sums are read and written once for both. */
typedef void rows_of_lanes(const volta_call *call, int64_t r, int64_t lane, int64_t count);

/* The two functions of `rows`, each compiled by itself: in one they would share the registers. */
#define VOLTA_ROWS_OF_LANES(rows, name, whole) \
  static __attribute__((noinline)) void name##_singles(const volta_call *call, int64_t r, \
                                                       int64_t lane, int64_t count) { \
    rows(call, r, lane, count, 0, whole); \
  } \
  static __attribute__((noinline)) void name##_pairs(const volta_call *call, int64_t r, \
                                                     int64_t lane, int64_t count) { \
    rows(call, r, lane, count, 1, whole); \
  }

/* The sums over rows of `sums` outputs, of this thread's lanes. Rows come in ascending order over as many
 * lanes as fit, because memory gives long runs faster than single rows. */
static int over_lanes(const volta_call *call, int sums, rows_of_lanes *singles,
                      rows_of_lanes *pairs) {
  const int64_t R = call->operand[0].shape[0], C = call->operand[0].shape[1];
  /* where registers hold a pair, and the first cache until its rows are read again */
  const int paired = VOLTA_WIDTH == 16 && 3 * 2 * C <= ROW_GROUP_ELEMENTS;
  const int64_t group = row_group(3 * (paired ? 2 : 1) * C);
  int64_t kept = PARTIALS_BYTES / (sums * volta_partial_bytes(C) + 1), first, last;
  if (kept < group) kept = group;
  volta_share(VOLTA_LANES, call->thread, call->threads, &first, &last);
  for (int64_t lane = first; lane < last; lane += kept) {
    const int64_t end = last - lane < kept ? last : lane + kept;
    for (int64_t j = lane; j < end; j++)
      for (int which = 0; which < sums; which++) start_partial(call, which, j);
    int64_t base = 0;
    for (; paired && base + 2 * VOLTA_LANES <= R; base += 2 * VOLTA_LANES)
      for (int64_t j = lane; j < end; j += group)
        pairs(call, base + j, j, end - j < group ? end - j : group);
    for (; base < R; base += VOLTA_LANES) {
      const int64_t stop = R - base < end ? R - base : end;
      for (int64_t j = lane; j < stop; j += group)
        singles(call, base + j, j, stop - j < group ? stop - j : group);
    }
  }
  if (call->threads > 1) volta_pool_barrier(call->pool);
  for (int which = 0; which < sums; which++)
    combine_partials(call, which, volta_element(call, 1 + which, 0));
  return VOLTA_OK;
}

/* What a row's sums need, and the sums. */
typedef struct {
  const float *x, *g;
  volta_block mean, rstd, d, dh;
} norm_row;

VOLTA_INLINE norm_row layer_norm_row(const volta_call *call, int64_t r) {
  return (norm_row){.x = volta_row(call, 3, r),
                    .g = volta_row(call, 6, r),
                    .mean = block_set(*volta_entry(call, 4, r, 0)),
                    .rstd = block_set(*volta_entry(call, 4, r, 1)),
                    .d = block_set(0.0f),
                    .dh = block_set(0.0f)};
}

VOLTA_INLINE void layer_norm_block(norm_row *row, int64_t i, int64_t n, volta_block w,
                                   volta_block *dw, volta_block *db) {
  const volta_block h = block_mul(block_sub(block_load(row->x + i, n, 0.0f), row->mean), row->rstd);
  const volta_block g = block_load(row->g + i, n, 0.0f), d = block_mul(g, w);
  row->d = block_add(row->d, d);
  row->dh = block_add(row->dh, block_keep(block_mul(d, h), n));
  *dw = block_add(*dw, block_mul(g, h));
  *db = block_add(*db, g);
}

/* 2: dx = ((d - a) - h * c) * rstd, with a = N2(d) * (1/C) and c = N2(d * h) * (1/C) */
VOLTA_INLINE void layer_norm_dx(const volta_call *call, int64_t r, float a, float c, int whole) {
  const int64_t C = call->operand[0].shape[1];
  const float *w = volta_element(call, 5, 0);
  float *dx = volta_row(call, 0, r);
  const norm_row row = layer_norm_row(call, r);
  const volta_block as = block_set(a), cs = block_set(c);
  for (int64_t i = 0; i < C; i += VOLTA_LANES) {
    const int64_t n = block_size(C - i, whole);
    const volta_block h = block_mul(block_sub(block_load(row.x + i, n, 0.0f), row.mean), row.rstd);
    const volta_block d = block_mul(block_load(row.g + i, n, 0.0f), block_load(w + i, n, 0.0f));
    block_store(dx + i, block_mul(block_sub(block_sub(d, as), block_mul(h, cs)), row.rstd), n);
  }
}

VOLTA_INLINE void layer_norm_grad_rows(const volta_call *call, int64_t r, int64_t lane,
                                       int64_t count, int pairs, int whole) {
  const int64_t C = call->operand[0].shape[1];
  const float inverse_c = 1.0f / (float)C, *w = volta_element(call, 5, 0);
  float a[2][VOLTA_ROW_GROUP], c[2][VOLTA_ROW_GROUP];

  /* 1: a and c. 3, 4: dw's lane adds g * h, db's adds g */
  for (int64_t k = 0; k < count; k++) {
    float *dw = volta_partial(call, 0, lane + k), *db = volta_partial(call, 1, lane + k);
    norm_row one = layer_norm_row(call, r + k);
    norm_row other = pairs ? layer_norm_row(call, r + k + VOLTA_LANES) : one;
    for (int64_t i = 0; i < C; i += VOLTA_LANES) {
      const int64_t n = block_size(C - i, whole);
      const volta_block ws = block_load(w + i, n, 0.0f);
      volta_block dws = block_load(dw + i, n, 0.0f), dbs = block_load(db + i, n, 0.0f);
      layer_norm_block(&one, i, n, ws, &dws, &dbs);
      if (pairs) layer_norm_block(&other, i, n, ws, &dws, &dbs);
      block_store(dw + i, dws, n);
      block_store(db + i, dbs, n);
    }
    a[0][k] = block_sum(one.d) * inverse_c, c[0][k] = block_sum(one.dh) * inverse_c;
    if (pairs) a[1][k] = block_sum(other.d) * inverse_c, c[1][k] = block_sum(other.dh) * inverse_c;
  }

  for (int t = 0; t <= pairs; t++)
    for (int64_t k = 0; k < count; k++)
      layer_norm_dx(call, r + k + t * VOLTA_LANES, a[t][k], c[t][k], whole);
}

VOLTA_ROWS_OF_LANES(layer_norm_grad_rows, layer_norm_grad_whole, 1)
VOLTA_ROWS_OF_LANES(layer_norm_grad_rows, layer_norm_grad_any, 0)

int VOLTA_ISA_NAME(layer_norm_grad)(const volta_call *call) {
  if (volta_last_stride(call, 1) != 1 || volta_last_stride(call, 2) != 1 ||
      volta_last_stride(call, 5) != 1)
    return volta_layer_norm_grad_ref(call);
  if (call->operand[0].shape[1] % VOLTA_LANES == 0)
    return over_lanes(call, 2, layer_norm_grad_whole_singles, layer_norm_grad_whole_pairs);
  return over_lanes(call, 2, layer_norm_grad_any_singles, layer_norm_grad_any_pairs);
}

VOLTA_INLINE norm_row rms_norm_row(const volta_call *call, int64_t r) {
  return (norm_row){.x = volta_row(call, 2, r),
                    .g = volta_row(call, 5, r),
                    .rstd = block_set(*volta_entry(call, 3, r, 0)),
                    .dh = block_set(0.0f)};
}

VOLTA_INLINE void rms_norm_block(norm_row *row, int64_t i, int64_t n, volta_block w,
                                 volta_block *dw) {
  const volta_block h = block_mul(block_load(row->x + i, n, 0.0f), row->rstd);
  const volta_block g = block_load(row->g + i, n, 0.0f);
  row->dh = block_add(row->dh, block_keep(block_mul(block_mul(g, w), h), n));
  *dw = block_add(*dw, block_mul(g, h));
}

/* 2: dx = (d - h * c) * rstd, with c = N2(d * h) * (1/C) */
VOLTA_INLINE void rms_norm_dx(const volta_call *call, int64_t r, float c, int whole) {
  const int64_t C = call->operand[0].shape[1];
  const float *w = volta_element(call, 4, 0);
  float *dx = volta_row(call, 0, r);
  const norm_row row = rms_norm_row(call, r);
  const volta_block cs = block_set(c);
  for (int64_t i = 0; i < C; i += VOLTA_LANES) {
    const int64_t n = block_size(C - i, whole);
    const volta_block h = block_mul(block_load(row.x + i, n, 0.0f), row.rstd);
    const volta_block d = block_mul(block_load(row.g + i, n, 0.0f), block_load(w + i, n, 0.0f));
    block_store(dx + i, block_mul(block_sub(d, block_mul(h, cs)), row.rstd), n);
  }
}

VOLTA_INLINE void rms_norm_grad_rows(const volta_call *call, int64_t r, int64_t lane, int64_t count,
                                     int pairs, int whole) {
  const int64_t C = call->operand[0].shape[1];
  const float inverse_c = 1.0f / (float)C, *w = volta_element(call, 4, 0);
  float c[2][VOLTA_ROW_GROUP];

  /* 1: c. 3: the lane of dw adds g * h */
  for (int64_t k = 0; k < count; k++) {
    float *dw = volta_partial(call, 0, lane + k);
    norm_row one = rms_norm_row(call, r + k);
    norm_row other = pairs ? rms_norm_row(call, r + k + VOLTA_LANES) : one;
    for (int64_t i = 0; i < C; i += VOLTA_LANES) {
      const int64_t n = block_size(C - i, whole);
      const volta_block ws = block_load(w + i, n, 0.0f);
      volta_block dws = block_load(dw + i, n, 0.0f);
      rms_norm_block(&one, i, n, ws, &dws);
      if (pairs) rms_norm_block(&other, i, n, ws, &dws);
      block_store(dw + i, dws, n);
    }
    c[0][k] = block_sum(one.dh) * inverse_c;
    if (pairs) c[1][k] = block_sum(other.dh) * inverse_c;
  }

  for (int t = 0; t <= pairs; t++)
    for (int64_t k = 0; k < count; k++) rms_norm_dx(call, r + k + t * VOLTA_LANES, c[t][k], whole);
}

VOLTA_ROWS_OF_LANES(rms_norm_grad_rows, rms_norm_grad_whole, 1)
VOLTA_ROWS_OF_LANES(rms_norm_grad_rows, rms_norm_grad_any, 0)

int VOLTA_ISA_NAME(rms_norm_grad)(const volta_call *call) {
  if (volta_last_stride(call, 1) != 1 || volta_last_stride(call, 4) != 1)
    return volta_rms_norm_grad_ref(call);
  if (call->operand[0].shape[1] % VOLTA_LANES == 0)
    return over_lanes(call, 1, rms_norm_grad_whole_singles, rms_norm_grad_whole_pairs);
  return over_lanes(call, 1, rms_norm_grad_any_singles, rms_norm_grad_any_pairs);
}
