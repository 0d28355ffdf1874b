/* One token per row of logits, and the marks of the tokens that a row has seen.
 *
 *   1  x = logit; seen: x > 0 ? x / r : x * r      r the repetition penalty; 1 leaves x as it is
 *   2  temperature t <= 0: the first largest x
 *   3  x = x * (1 / t)
 *   4  rank the tokens by x descending, smaller token first among equals; keep the first top_k
 *   5  p = softmax of the kept, in the order of rank (N4)
 *   6  top_p: keep the shortest prefix whose sum of p, rank after rank, is >= top_p (1: all);
 *      min_p: of these keep the ones with p >= min_p * p_0; rank 0 is always kept
 *   7  u = uniform of word 0 of philox(counter = (rng counter, 0, stream, "SAMP"), key = seed);
 *      the token is the first kept rank whose running sum of p is > u * (sum of the kept p), or
 *      the last kept rank
 *
 * A row whose x has a NaN, or whose largest x is infinite when it is drawn from, is
 * VOLTA_NOT_FINITE. */
#include <math.h>

#include "../../philox.h"
#include "../lanes.h"
#include "../rows.h"

enum { TOKEN, LOGITS, SEEN, RNG, SETTINGS, TOP_K };
#define SAMPLE_WORD 0x53414d50u /* "SAMP" */
#define HEAP_MOST 1024          /* a larger top_k is taken from the full order */

/* A token in the order: its x as an unsigned key that descends as x does. */
typedef struct {
  uint32_t key;
  int32_t token;
} candidate;

/* Equal floats have equal keys (-0 is +0), and x < y gives key(x) > key(y). */
static uint32_t descending_key(float x) {
  const uint32_t bits = volta_bits(x + 0.0f);
  return bits >> 31 ? bits : ~bits & 0x7fffffffu;
}

static float key_value(uint32_t key) { return volta_float(key >> 31 ? key : ~key & 0x7fffffffu); }

static int comes_before(candidate a, candidate b) {
  return a.key != b.key ? a.key < b.key : a.token < b.token;
}

/* --- the order of all: radix sort, least significant digit first, stable ---------------------- */
#define DIGITS 3
#define DIGIT_BITS 11

static candidate *order_all(candidate *from, candidate *to, int64_t count) {
  for (int digit = 0; digit < DIGITS; digit++) {
    uint32_t start[1 << DIGIT_BITS] = {0};
    const int shift = digit * DIGIT_BITS;
    const uint32_t mask = (1u << DIGIT_BITS) - 1;
    for (int64_t i = 0; i < count; i++) start[from[i].key >> shift & mask]++;
    uint32_t before = 0;
    for (uint32_t value = 0; value <= mask; value++) {
      const uint32_t here = start[value];
      start[value] = before;
      before += here;
    }
    for (int64_t i = 0; i < count; i++) to[start[from[i].key >> shift & mask]++] = from[i];
    candidate *swap = from;
    from = to;
    to = swap;
  }
  return from;
}

/* --- the first few: a heap whose root is the last of those kept ------------------------------- */
static void sift_down(candidate *heap, int64_t count, int64_t at, candidate item) {
  for (int64_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && comes_before(heap[child], heap[child + 1])) child++;
    if (!comes_before(item, heap[child])) break;
    heap[at] = heap[child];
  }
  heap[at] = item;
}

/* The first `keep` of all candidates, in order, at the beginning of the array. */
static void order_first(candidate *all, int64_t count, int64_t keep) {
  for (int64_t at = keep / 2 - 1; at >= 0; at--) sift_down(all, keep, at, all[at]);
  for (int64_t i = keep; i < count; i++)
    if (comes_before(all[i], all[0])) sift_down(all, keep, 0, all[i]);
  for (int64_t end = keep - 1; end > 0; end--) {
    const candidate last = all[0];
    sift_down(all, end, 0, all[end]);
    all[end] = last;
  }
}

/* --- one row ---------------------------------------------------------------------------------- */
static float penalised(float x, int seen, float penalty) {
  if (!seen || penalty == 1.0f) return x;
  return x > 0.0f ? x / penalty : x * penalty;
}

/* Step 7 over the ranks that min_p keeps: p >= least, and rank 0. */
static int64_t draw(const float *p, int64_t count, float least, float u) {
  float total = 0.0f;
  for (int64_t i = 0; i < count; i++)
    if (i == 0 || p[i] >= least) total += p[i];
  const float target = u * total;
  float sum = 0.0f;
  int64_t rank = 0;
  for (int64_t i = 0; i < count; i++) {
    if (i > 0 && !(p[i] >= least)) continue;
    rank = i;
    sum += p[i];
    if (sum > target) break;
  }
  return rank;
}

/* Step 6, top_p: how many ranks are kept. */
static int64_t shortest_prefix(const float *p, int64_t count, float top_p) {
  if (top_p >= 1.0f) return count;
  float sum = 0.0f;
  for (int64_t i = 0; i < count; i++) {
    sum += p[i];
    if (sum >= top_p) return i + 1;
  }
  return count;
}

/* Per thread: p of every rank, and two arrays of candidates. */
static int64_t row_bytes(int64_t V) {
  return volta_align(V * (int64_t)sizeof(float)) + 2 * volta_align(V * (int64_t)sizeof(candidate));
}

int64_t volta_sample_workspace(const volta_step *step, const volta_operand *operand, int isa,
                               int threads) {
  (void)step, (void)isa;
  return threads * row_bytes(operand[LOGITS].shape[1]);
}

static int sample_row(const volta_call *call, int64_t b, char *workspace) {
  const int64_t V = call->operand[LOGITS].shape[1];
  const float *logits = volta_row(call, LOGITS, b);
  const int32_t *seen = (const int32_t *)volta_row(call, SEEN, b);
  const int32_t *rng = (const int32_t *)volta_row(call, RNG, b);
  const float *settings = volta_row(call, SETTINGS, b);
  const int64_t word = call->operand[RNG].stride[1], setting = call->operand[SETTINGS].stride[1];
  const float temperature = settings[0], top_p = settings[setting];
  const float penalty = settings[2 * setting], min_p = settings[3 * setting];
  int32_t *token = (int32_t *)volta_element(call, TOKEN, b);
  float *p = (float *)workspace;
  candidate *all = (candidate *)(workspace + volta_align(V * (int64_t)sizeof(float)));
  candidate *other = (candidate *)((char *)all + volta_align(V * (int64_t)sizeof(candidate)));

  /* 1, 2, 3 */
  const int greedy = !(temperature > 0.0f);
  const float factor = greedy ? 1.0f : 1.0f / temperature;
  int64_t largest = 0;
  for (int64_t i = 0; i < V; i++) {
    const float x = penalised(logits[i], seen[i], penalty) * factor;
    if (x != x) return volta_fail(call, VOLTA_NOT_FINITE, b * V + i, 0);
    all[i] = (candidate){descending_key(x), (int32_t)i};
    if (all[i].key < all[largest].key) largest = i;
  }
  if (greedy) {
    *token = (int32_t)largest;
    return VOLTA_OK;
  }
  const float m = key_value(all[largest].key);
  if (isinf(m)) return volta_fail(call, VOLTA_NOT_FINITE, b * V + largest, 0);

  /* 4 */
  const int64_t top_k = *(const int32_t *)volta_element(call, TOP_K, b);
  const int64_t ranks = top_k > 0 && top_k < V ? top_k : V;
  if (ranks <= HEAP_MOST)
    order_first(all, V, ranks);
  else
    all = order_all(all, other, V);

  /* 5 */
  for (int64_t i = 0; i < ranks; i++) p[i] = volta_exp(key_value(all[i].key) - m);
  const float inverse = 1.0f / volta_lanes_sum(p, ranks, 1);
  for (int64_t i = 0; i < ranks; i++) p[i] = p[i] * inverse;

  /* 6, 7 */
  const volta_u32x4 block = volta_philox((volta_u32)rng[3 * word], 0, (volta_u32)rng[2 * word],
                                         SAMPLE_WORD, (volta_u32)rng[0], (volta_u32)rng[word]);
  const int64_t prefix = shortest_prefix(p, ranks, top_p);
  *token = all[draw(p, prefix, min_p * p[0], volta_uniform(block.v[0]))].token;
  return VOLTA_OK;
}

int volta_sample_ref(const volta_call *call) {
  const int64_t B = call->operand[LOGITS].shape[0], V = call->operand[LOGITS].shape[1];
  char *workspace = call->workspace + call->thread * row_bytes(V);
  int64_t first, last;
  volta_share(V > 0 ? B : 0, call->thread, call->threads, &first, &last);
  for (int64_t b = first; b < last; b++) {
    const int status = sample_row(call, b, workspace);
    if (status != VOLTA_OK) return status;
  }
  return VOLTA_OK;
}

/* --- seen tokens ------------------------------------------------------------------------------ */
/* seen[b, tokens[b, :lengths[b]]] = 1. Every thread checks everything before any mark is made. */
int volta_mark_seen_ref(const volta_call *call) {
  enum { MARKS, TOKENS, LENGTHS };
  const int64_t B = call->operand[MARKS].shape[0], V = call->operand[MARKS].shape[1];
  const int64_t T = call->operand[TOKENS].shape[1], step = call->operand[TOKENS].stride[1];
  for (int64_t b = 0; b < B; b++) {
    const int64_t length = *(const int32_t *)volta_element(call, LENGTHS, b);
    if (length < 0 || length > T) return volta_fail(call, VOLTA_INDEX_RANGE, length, T + 1);
    const int32_t *tokens = (const int32_t *)volta_row(call, TOKENS, b);
    for (int64_t t = 0; t < length; t++)
      if (tokens[t * step] < 0 || tokens[t * step] >= V)
        return volta_fail(call, VOLTA_INDEX_RANGE, tokens[t * step], V);
  }
  int64_t first, last;
  volta_share(B, call->thread, call->threads, &first, &last);
  for (int64_t b = first; b < last; b++) {
    const int64_t length = *(const int32_t *)volta_element(call, LENGTHS, b);
    const int32_t *tokens = (const int32_t *)volta_row(call, TOKENS, b);
    int32_t *marks = (int32_t *)volta_row(call, MARKS, b);
    for (int64_t t = 0; t < length; t++) marks[tokens[t * step]] = 1;
  }
  return VOLTA_OK;
}
