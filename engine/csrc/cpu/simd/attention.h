/* Attention and its gradient on register tiles (N5); cpu/ref/attention.c says what they compute.
 *
 * A *block* is up to 64 query rows that read the same key head. Its scores live in the thread's
 * workspace, [rows, keys]; K (and V, for the gradient) is transposed there into panels of
 * ATTENTION_PANEL keys, [D, keys], once per key head. Work grows with the visible keys only. */
#ifndef VOLTA_SIMD_ATTENTION_H
#define VOLTA_SIMD_ATTENTION_H

#include <math.h>

#include "../attention.h"
#include "attention_tile.h"

#define ATTENTION_BLOCK_ROWS (64 / ATTENTION_ROWS * ATTENTION_ROWS)
#define ATTENTION_BLOCK_SCORES (1 << 16) /* floats of one block's scores: a quarter of a 1 MiB L2 */
#define ATTENTION_COLUMNS 64              /* columns of V in one such pass */
#define ATTENTION_KEYS 128               /* keys whose V rows stay in the L1 cache while a block uses them */

static inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* --- workspace ------------------------------------------------------------------------------------------ */
/* Sizes in floats. All are multiples of 16, so every part is aligned, and the distances between rows
 * are odd multiples of 64 bytes: rows then spread over the sets of the L1 cache. */
typedef struct {
  int64_t rows;      /* of a block, at most */
  int64_t score_row; /* distance between rows of scores: S in whole blocks of N2, and more */
  int64_t copy_row;  /* distance between copied rows of D */
  int64_t panel;     /* one panel */
  int64_t panels;    /* kept per key head: all of them, or 1 where no second block would read them */
  int64_t copies;    /* copied rows of keys: all, or 0 where too few queries would read them */
} attention_sizes;

static attention_sizes attention_sizes_of(const volta_attention_shape *shape, int gradient) {
  attention_sizes sizes;
  sizes.score_row = round_up(shape->S, 64) + 16;
  sizes.copy_row = round_up(shape->D, 32) + 16;
  const int64_t fitting = ATTENTION_BLOCK_SCORES / sizes.score_row / ATTENTION_ROWS * ATTENTION_ROWS;
  sizes.rows = smaller(larger(fitting, ATTENTION_ROWS), ATTENTION_BLOCK_ROWS);
  sizes.panel = ATTENTION_PANEL * shape->D;
  const int one_block = gradient ? shape->group <= 1 && shape->T <= sizes.rows
                                 : shape->group * shape->T <= sizes.rows;
  sizes.panels = one_block ? 1 : round_up(shape->S, ATTENTION_PANEL) / ATTENTION_PANEL;
  sizes.copies = shape->group * shape->T > 2 * ATTENTION_ROWS ? shape->S : 0;
  return sizes;
}

/* Per thread: panels of K, copies of V, copied rows of q, scores. The gradient: panels of K and V,
 * copies of K, copied rows of q and g, scores and their gradients. */
static int64_t attention_bytes(const attention_sizes *sizes, int gradient) {
  const int64_t once = sizes->copies * sizes->copy_row;
  const int64_t twice = sizes->panels * sizes->panel + sizes->rows * (sizes->copy_row + sizes->score_row);
  return volta_align((once + (gradient ? 2 : 1) * twice) * (int64_t)sizeof(float));
}

/* --- rows -------------------------------------------------------------------------------------------------- */
/* Writes whole N2 blocks. */
static inline void copy_row(float *to, const float *from, int64_t D) {
  for (int64_t d = 0; d < D; d += VOLTA_LANES) block_store(to + d, block_load(from + d, D - d, 0.0f), VOLTA_LANES);
}

static inline void zero_row(float *x, int64_t D) {
  for (int64_t d = 0; d < D; d += VOLTA_LANES) block_store(x + d, block_set(0.0f), D - d);
}

/* --- K or V of one key head, packed or copied when a block first asks ------------------------------------------ */
typedef struct {
  const float *x; /* row 0 */
  int64_t x_row, rows, D;
  float *panels; /* NULL: not used */
  int64_t panel, slots;
  int64_t first, last; /* these panels are packed */
  float *copies; /* NULL: not used */
  int64_t copy_row, copied;
} key_store;

static void keys_begin(key_store *store, const float *x, int64_t x_row, int64_t rows) {
  if (store->x == x && store->rows == rows) return;
  store->x = x;
  store->x_row = x_row;
  store->rows = rows;
  store->first = store->last = store->copied = 0;
}

static const float *keys_panel(key_store *store, int64_t panel) {
  float *at = store->panels + (store->slots > 1 ? panel * store->panel : 0);
  if (panel >= store->first && panel < store->last) return at;
  if (panel != store->last || store->slots == 1) store->first = panel;
  store->last = panel + 1;
  const int64_t key = panel * ATTENTION_PANEL;
  panel_pack(at, store->x + key * store->x_row, store->x_row, smaller(store->rows - key, ATTENTION_PANEL),
             store->D);
  return at;
}

/* Rows 0 .. last, *row apart. A copy is worth its price: rows of a view of a larger tensor lie far
 * apart, so they share few sets of the L1 cache, and each in a page of its own. */
static const float *keys_rows(key_store *store, int64_t last, int64_t *row) {
  *row = store->copies == NULL ? store->x_row : store->copy_row;
  if (store->copies == NULL) return store->x;
  for (; store->copied < last; store->copied++)
    copy_row(store->copies + store->copied * store->copy_row, store->x + store->copied * store->x_row, store->D);
  return store->copies;
}

/* --- one block --------------------------------------------------------------------------------------------- */
typedef struct {
  const volta_call *call;
  volta_attention_shape shape;
  attention_sizes sizes;
  key_store k, v;
  float *q, *g;  /* copied rows */
  float *p, *ds; /* scores, then probabilities; gradients of the scores */
  int64_t rows;  /* of this block */
  int64_t seen[ATTENTION_BLOCK_ROWS]; /* keys that a row sees; not decreasing */
  float *out[ATTENTION_BLOCK_ROWS];   /* the row of o or dq */
} attention_block;

static attention_block attention_begin(const volta_call *call, const volta_attention_shape *shape, int gradient) {
  attention_block block = {.call = call, .shape = *shape, .sizes = attention_sizes_of(shape, gradient)};
  const attention_sizes *sizes = &block.sizes;
  float *at = (float *)(call->workspace + call->thread * attention_bytes(sizes, gradient));
  const key_store empty = {
      .D = shape->D, .panel = sizes->panel, .slots = sizes->panels, .copy_row = sizes->copy_row};
  block.k = block.v = empty;
  float *copies = at;
  at += sizes->copies * sizes->copy_row;
  if (sizes->copies > 0 && gradient) block.k.copies = copies;
  if (sizes->copies > 0 && !gradient) block.v.copies = copies;
  block.k.panels = at;
  block.q = block.k.panels + sizes->panels * sizes->panel;
  block.p = block.q + sizes->rows * sizes->copy_row;
  if (gradient) {
    block.v.panels = block.p + sizes->rows * sizes->score_row;
    block.g = block.v.panels + sizes->panels * sizes->panel;
    block.ds = block.g + sizes->rows * sizes->copy_row;
  }
  return block;
}

/* out[r][j] = N1(a_r, x_j) * scale, for the keys from panel `first` on that row r sees, and for a few
 * more up to whole vectors; key j of panel `first` is column j - first * ATTENTION_PANEL. */
static void block_scores(attention_block *block, key_store *x, const float *a, float scale, int64_t first,
                         int64_t last, float *out) {
  const int64_t a_row = block->sizes.copy_row, out_row = block->sizes.score_row;
  const int64_t end = smaller(block->seen[block->rows - 1], last * ATTENTION_PANEL);
  for (int64_t panel = first; panel * ATTENTION_PANEL < end; panel++) {
    const int64_t key = panel * ATTENTION_PANEL;
    const float *packed = keys_panel(x, panel);
    for (int64_t r = 0; r < block->rows; r += ATTENTION_ROWS) {
      const int64_t m = smaller(block->rows - r, ATTENTION_ROWS);
      const int64_t columns =
          round_up(smaller(block->seen[r + m - 1] - key, ATTENTION_PANEL), VOLTA_WIDTH);
      float *to = out + r * out_row + key - first * ATTENTION_PANEL;
      for (int64_t c = 0, nv; c < columns; c += nv * VOLTA_WIDTH) {
        nv = tile_vectors(m, columns - c);
        score_tiles[m][nv](block->shape.D, a + r * a_row, a_row, packed + c, scale, to + c, out_row);
      }
    }
  }
}

/* block->out[r] = N1 over visible keys j (a[r][j], x_j). */
static void block_keys(const attention_block *block, const float *a, key_store *store) {
  const int64_t D = block->shape.D, a_row = block->sizes.score_row, seen = block->seen[block->rows - 1];
  int64_t x_row;
  const float *x = keys_rows(store, seen, &x_row);
  int64_t key = 0;
  do {
    for (int64_t d = 0; d < D; d += ATTENTION_COLUMNS)
      for (int64_t r = 0; r < block->rows; r += ATTENTION_ROWS) {
        const int64_t m = smaller(block->rows - r, ATTENTION_ROWS), end = smaller(D, d + ATTENTION_COLUMNS);
        for (int64_t c = d, nv; c < end; c += nv * VOLTA_WIDTH) {
          nv = tile_vectors(m, end - c);
          keys_tiles[m][nv](mask_first(end - c), key, key + ATTENTION_KEYS, block->seen + r,
                            a + r * a_row + key, a_row, x + key * x_row + c, x_row, block->out + r, c);
        }
      }
    key += ATTENTION_KEYS;
  } while (key < seen);
}

/* --- softmax ------------------------------------------------------------------------------------------------- */
/* Rows r .. r + rows of the scores become p by N4; stats = (m, 1 / sum). Each pass runs over all rows
 * before the next begins, so one row's fold and division hide behind its neighbours' work. Whole N2
 * blocks are written; elements after the visible ones are read as m, since the exponential of -inf
 * or of a chance value could be subnormal, which is slow. */
static void block_softmax(const attention_block *block, int64_t r, int64_t rows, float *const *stats) {
  const int64_t score_row = block->sizes.score_row, *seen = block->seen + r;
  float *p = block->p + r * score_row;

  /* 1: m = max s */
  for (int64_t i = 0; i < rows; i++) {
    const float *x = p + i * score_row;
    volta_block largest = block_set(-INFINITY);
    for (int64_t j = 0; j < seen[i]; j += VOLTA_LANES)
      largest = block_max(block_load(x + j, seen[i] - j, -INFINITY), largest);
    stats[i][0] = block_largest(largest) + 0.0f;
  }

  /* 2: e = exp(s - m); 1 / N2(e) */
  for (int64_t i = 0; i < rows; i++) {
    float *x = p + i * score_row;
    const float m = stats[i][0];
    volta_block lanes = block_set(0.0f);
    for (int64_t j = 0; j < seen[i]; j += VOLTA_LANES) {
      const volta_block e = block_exp(block_sub(block_load(x + j, seen[i] - j, m), block_set(m)));
      lanes = block_add(lanes, block_keep(e, seen[i] - j));
      block_store(x + j, e, VOLTA_LANES);
    }
    stats[i][1] = 1.0f / block_sum(lanes);
  }

  /* 3: p = e * (1 / N2(e)) */
  for (int64_t i = 0; i < rows; i++) {
    float *x = p + i * score_row;
    const volta_block inverse = block_set(stats[i][1]);
    for (int64_t j = 0; j < seen[i]; j += VOLTA_LANES)
      block_store(x + j, block_mul(block_load(x + j, VOLTA_LANES, 0.0f), inverse), VOLTA_LANES);
  }
}

/* --- shares of causal work -------------------------------------------------------------------------------------- */
/* Units come in one order on every thread; a unit belongs to the thread that holds the middle of its
 * cost on the line of all costs. */
typedef struct {
  int64_t before, total;
} cost_line;

static int cost_mine(cost_line *line, int64_t cost, const volta_call *call) {
  const int64_t middle = line->before + cost / 2;
  line->before += cost;
  return line->total > 0 && middle * call->threads / line->total == call->thread;
}

/* Rows first .. last of a key head (query t of group member u is row t * group + u) and what they see. */
static int64_t rows_cost(const volta_attention_shape *shape, int64_t position, int64_t group, int64_t first,
                         int64_t last) {
  return (last - first) * (2 + volta_visible(shape, position, first / group) +
                           volta_visible(shape, position, (last - 1) / group));
}

/* --- attention ---------------------------------------------------------------------------------------------------- */
int64_t VOLTA_ISA_NAME(attention_workspace)(const volta_step *step, const volta_operand *operand,
                                            int threads) {
  const volta_attention_shape shape =
      volta_attention_shape_of(step, &operand[ATTENTION_Q], &operand[ATTENTION_K]);
  const attention_sizes sizes = attention_sizes_of(&shape, 0);
  return threads * attention_bytes(&sizes, 0);
}

static void attention_rows(attention_block *block, int64_t b, int64_t g, int64_t first, int64_t last) {
  const volta_call *call = block->call;
  const volta_attention_shape *shape = &block->shape;
  const int64_t position = volta_position(call, ATTENTION_POSITION, b);
  float *stats[ATTENTION_BLOCK_ROWS];
  block->rows = last - first;
  int64_t t = first / shape->group, u = first % shape->group;
  for (int64_t r = 0; r < block->rows; r++) {
    const int64_t h = g * shape->group + u;
    block->seen[r] = volta_visible(shape, position, t);
    block->out[r] = volta_row4(call, ATTENTION_O, b, h, t);
    stats[r] = volta_row4(call, ATTENTION_STATS, b, h, t);
    copy_row(block->q + r * block->sizes.copy_row, volta_row4(call, ATTENTION_Q, b, h, t), shape->D);
    if (++u == shape->group) u = 0, t++;
  }
  const int64_t keys = volta_visible(shape, position, shape->T - 1);
  keys_begin(&block->k, volta_row4(call, ATTENTION_K, b, g, 0), call->operand[ATTENTION_K].stride[2], keys);
  keys_begin(&block->v, volta_row4(call, ATTENTION_V, b, g, 0), call->operand[ATTENTION_V].stride[2], keys);
  block_scores(block, &block->k, block->q, shape->scale, 0, INT32_MAX, block->p);
  for (int64_t r = 0; r < block->rows; r += ATTENTION_ROWS)
    block_softmax(block, r, smaller(block->rows - r, ATTENTION_ROWS), stats + r);
  block_keys(block, block->p, &block->v);
}

int VOLTA_ISA_NAME(attention)(const volta_call *call) {
  const volta_attention_shape shape =
      volta_attention_shape_of(call->step, &call->operand[ATTENTION_Q], &call->operand[ATTENTION_K]);
  if (shape.causal) {
    const int status = volta_check_positions(call, ATTENTION_POSITION, shape.T, shape.S);
    if (status != VOLTA_OK) return status;
  }
  attention_block block = attention_begin(call, &shape, 0);
  const int64_t rows = shape.T * shape.group;
  cost_line line = {0, 0};
  for (int pass = 0; pass < 2; pass++)
    for (int64_t b = 0; b < shape.B; b++) {
      const int64_t position = volta_position(call, ATTENTION_POSITION, b);
      for (int64_t g = 0; g < shape.G; g++)
        for (int64_t first = 0; first < rows; first += block.sizes.rows) {
          const int64_t last = smaller(rows, first + block.sizes.rows);
          const int64_t cost = rows_cost(&shape, position, shape.group, first, last);
          if (pass == 0)
            line.total += cost;
          else if (cost_mine(&line, cost, call))
            attention_rows(&block, b, g, first, last);
        }
    }
  return VOLTA_OK;
}

/* --- gradient ------------------------------------------------------------------------------------------------------- */
int64_t VOLTA_ISA_NAME(attention_grad_workspace)(const volta_step *step, const volta_operand *operand,
                                                 int threads) {
  const volta_attention_shape shape =
      volta_attention_shape_of(step, &operand[ATTENTION_GRAD_Q], &operand[ATTENTION_GRAD_K]);
  const attention_sizes sizes = attention_sizes_of(&shape, 1);
  return threads * attention_bytes(&sizes, 1);
}

/* delta = N2 over D (g * o) */
static float row_delta(const float *g, const float *o, int64_t D) {
  volta_block lanes = block_set(0.0f);
  for (int64_t d = 0; d < D; d += VOLTA_LANES)
    lanes = block_add(lanes, block_mul(block_load(g + d, D - d, 0.0f), block_load(o + d, D - d, 0.0f)));
  return block_sum(lanes);
}

/* p holds s and becomes exp(s - m) * i; ds holds dp and becomes (p * (dp - delta)) * scale. */
static void score_gradients(float *restrict p, float *restrict ds, int64_t n, const float *stats, float delta,
                            float scale) {
  const float m = stats[0], inverse = stats[1];
  for (int64_t j = 0; j < n; j++) {
    const float probability = volta_exp(p[j] - m) * inverse;
    p[j] = probability;
    ds[j] = (probability * (ds[j] - delta)) * scale;
  }
}

/* For keys j in [first, last): out_j continues N1 over the block's rows t that see j (a[t][j - origin], x_t). */
static void block_queries(const attention_block *block, const float *a, int64_t origin, const float *x,
                          int64_t first, int64_t last, float *out, int64_t out_row) {
  const int64_t D = block->shape.D, a_row = block->sizes.score_row, x_row = block->sizes.copy_row;
  int64_t row = 0; /* the first that sees key j */
  for (int64_t j = first; j < last; j += ATTENTION_ROWS) {
    const int64_t m = smaller(last - j, ATTENTION_ROWS);
    while (block->seen[row] <= j) row++;
    for (int64_t d = 0, nv; d < D; d += nv * VOLTA_WIDTH) {
      nv = tile_vectors(m, D - d);
      queries_tiles[m][nv](mask_first(D - d), row, block->rows, block->seen[row] - 1 - j,
                           a + row * a_row + j - origin, a_row, x + row * x_row + d, x_row,
                           out + j * out_row + d, out_row);
    }
  }
}

/* What a call of attention_grad_rows is to produce, from queries first .. last of one head. */
enum { WANT_DQ = 1, WANT_DK_DV = 2 };

/* WANT_DQ needs every panel; WANT_DK_DV gives dk and dv of the keys of panels panel .. panel_end. */
static void attention_grad_rows(attention_block *block, int64_t b, int64_t h, int64_t first, int64_t last,
                                int64_t panel, int64_t panel_end, int want) {
  const volta_call *call = block->call;
  const volta_operand *operand = call->operand;
  const volta_attention_shape *shape = &block->shape;
  const int64_t g = h / shape->group, position = volta_position(call, ATTENTION_GRAD_POSITION, b);
  const int64_t origin = panel * ATTENTION_PANEL;
  block->rows = last - first;
  for (int64_t r = 0; r < block->rows; r++) {
    block->seen[r] = volta_visible(shape, position, first + r);
    block->out[r] = volta_row4(call, ATTENTION_GRAD_DQ, b, h, first + r);
    copy_row(block->q + r * block->sizes.copy_row, volta_row4(call, ATTENTION_GRAD_Q, b, h, first + r), shape->D);
    copy_row(block->g + r * block->sizes.copy_row, volta_row4(call, ATTENTION_GRAD_G, b, h, first + r), shape->D);
  }
  const int64_t end = smaller(block->seen[block->rows - 1], panel_end * ATTENTION_PANEL);
  if (end <= origin && want == WANT_DK_DV) return;
  const int64_t keys = volta_visible(shape, position, shape->T - 1);
  keys_begin(&block->k, volta_row4(call, ATTENTION_GRAD_K, b, g, 0), operand[ATTENTION_GRAD_K].stride[2], keys);
  keys_begin(&block->v, volta_row4(call, ATTENTION_GRAD_V, b, g, 0), operand[ATTENTION_GRAD_V].stride[2], keys);
  block_scores(block, &block->k, block->q, shape->scale, panel, panel_end, block->p);
  block_scores(block, &block->v, block->g, 1.0f, panel, panel_end, block->ds);
  for (int64_t r = 0; r < block->rows; r++) {
    const float delta = row_delta(block->g + r * block->sizes.copy_row,
                                  volta_row4(call, ATTENTION_GRAD_O, b, h, first + r), shape->D);
    const int64_t n = smaller(block->seen[r], end) - origin;
    if (n > 0)
      score_gradients(block->p + r * block->sizes.score_row, block->ds + r * block->sizes.score_row,
                      round_up(n, VOLTA_WIDTH), volta_row4(call, ATTENTION_GRAD_STATS, b, h, first + r), delta,
                      shape->scale);
  }
  if (want & WANT_DQ)
    block_keys(block, block->ds, &block->k);
  if (want & WANT_DK_DV) {
    block_queries(block, block->p, origin, block->g, origin, end, volta_row4(call, ATTENTION_GRAD_DV, b, g, 0),
                  operand[ATTENTION_GRAD_DV].stride[2]);
    block_queries(block, block->ds, origin, block->q, origin, end,
                  volta_row4(call, ATTENTION_GRAD_DK, b, g, 0), operand[ATTENTION_GRAD_DK].stride[2]);
  }
}

/* All queries of a key head, head by head and ascending: the order of the contractions of dk and dv. */
static void attention_grad_keys(attention_block *block, int64_t b, int64_t g, int64_t panel, int64_t panel_end,
                                int want) {
  const volta_attention_shape *shape = &block->shape;
  const int64_t last_key = smaller(shape->S, panel_end * ATTENTION_PANEL);
  for (int64_t j = panel * ATTENTION_PANEL; j < last_key; j++) {
    zero_row(volta_row4(block->call, ATTENTION_GRAD_DK, b, g, j), shape->D);
    zero_row(volta_row4(block->call, ATTENTION_GRAD_DV, b, g, j), shape->D);
  }
  for (int64_t h = g * shape->group; h < (g + 1) * shape->group; h++)
    for (int64_t first = 0; first < shape->T; first += block->sizes.rows)
      attention_grad_rows(block, b, h, first, smaller(shape->T, first + block->sizes.rows), panel, panel_end,
                          want);
}

/* A thread takes whole key heads: five contractions per visible pair. */
static void attention_grad_whole(attention_block *block) {
  const volta_attention_shape *shape = &block->shape;
  const int64_t panels = round_up(shape->S, ATTENTION_PANEL) / ATTENTION_PANEL;
  cost_line line = {0, 0};
  for (int pass = 0; pass < 2; pass++)
    for (int64_t b = 0; b < shape->B; b++) {
      const int64_t position = volta_position(block->call, ATTENTION_GRAD_POSITION, b);
      const int64_t cost = shape->S + (shape->T > 0 ? rows_cost(shape, position, 1, 0, shape->T) : 0);
      for (int64_t g = 0; g < shape->G; g++)
        if (pass == 0)
          line.total += cost;
        else if (cost_mine(&line, cost, block->call))
          attention_grad_keys(block, b, g, 0, panels, WANT_DQ | WANT_DK_DV);
    }
}

/* With fewer key heads than threads: blocks of queries for dq, then panels of keys for dk and dv. The
 * scores are computed in both, so there are seven contractions per visible pair. */
static void attention_grad_split(attention_block *block) {
  const volta_attention_shape *shape = &block->shape;
  const int64_t panels = round_up(shape->S, ATTENTION_PANEL) / ATTENTION_PANEL;
  cost_line queries = {0, 0}, keys = {0, 0};
  for (int pass = 0; pass < 2; pass++)
    for (int64_t b = 0; b < shape->B; b++) {
      const int64_t position = volta_position(block->call, ATTENTION_GRAD_POSITION, b);
      for (int64_t h = 0; h < shape->H; h++)
        for (int64_t first = 0; first < shape->T; first += block->sizes.rows) {
          const int64_t last = smaller(shape->T, first + block->sizes.rows);
          const int64_t cost = rows_cost(shape, position, 1, first, last);
          if (pass == 0)
            queries.total += cost;
          else if (cost_mine(&queries, cost, block->call))
            attention_grad_rows(block, b, h, first, last, 0, panels, WANT_DQ);
        }
    }
  for (int pass = 0; pass < 2; pass++)
    for (int64_t b = 0; b < shape->B; b++) {
      const int64_t position = volta_position(block->call, ATTENTION_GRAD_POSITION, b);
      for (int64_t g = 0; g < shape->G; g++)
        for (int64_t panel = 0; panel < panels; panel++) {
          const int64_t blind = shape->causal ? panel * ATTENTION_PANEL - position : 0;
          const int64_t cost = 1 + larger(0, shape->T - larger(0, blind)); /* queries that see the panel */
          if (pass == 0)
            keys.total += cost;
          else if (cost_mine(&keys, cost, block->call))
            attention_grad_keys(block, b, g, panel, panel + 1, WANT_DK_DV);
        }
    }
}

int VOLTA_ISA_NAME(attention_grad)(const volta_call *call) {
  const volta_attention_shape shape =
      volta_attention_shape_of(call->step, &call->operand[ATTENTION_GRAD_Q], &call->operand[ATTENTION_GRAD_K]);
  if (shape.causal) {
    const int status = volta_check_positions(call, ATTENTION_GRAD_POSITION, shape.T, shape.S);
    if (status != VOLTA_OK) return status;
  }
  attention_block block = attention_begin(call, &shape, 1);
  const int64_t heads = shape.B * shape.G;
  const int64_t whole = 5 * ((heads + call->threads - 1) / call->threads); /* of the busiest thread */
  const int64_t split = 7 * heads / call->threads;
  if (whole <= split)
    attention_grad_whole(&block);
  else
    attention_grad_split(&block);
  return VOLTA_OK;
}

#endif
