/* Runs the codes of cpu/amx/matmul.c over whole matrices as the driver does, without the driver: blocks of
 * columns, K blocks, copies, tiles of rows. With -DVOLTA_AMX_EMULATED it needs no AMX. */
#ifdef VOLTA_AMX_EMULATED
#include "amx_emulation.h"
uint8_t amx_tiles[8][16][64];
int amx_configured, amx_misuse;
#endif

#include "cpu/amx/matmul.c"

#include <stdlib.h>

typedef struct {
  int kind; /* VOLTA_CODE_BF16 or VOLTA_CODE_I8 */
  int64_t m, n, k, group, kc;
  int64_t a_rs, a_cs, b_rs, b_cs, c_rs;
} harness_shape;

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

/* 0, or what went wrong: 1 memory, 2 the emulated tiles were misused. */
int harness_run(const harness_shape *s, const void *a, const void *b, const float *scale, float *c);
int harness_run(const harness_shape *s, const void *a, const void *b, const float *scale,
                float *c) {
  const volta_matmul_code *code = s->kind == VOLTA_CODE_BF16 ? &volta_bf16_amx : &volta_i8_amx;
  const int64_t size = s->kind == VOLTA_CODE_BF16 ? 2 : 1,
                words = s->k + 64 * (s->k / s->group + 2);
  char *sliver = aligned_alloc(64, (size_t)(SIDE * (words * 4 + 64)) / 64 * 64 + 64);
  char *panel = aligned_alloc(64, (size_t)(SIDE * 4 * words) / 64 * 64 + 64);
  if (sliver == NULL || panel == NULL) return 1;
  code->begin();
  for (int64_t j = 0; j < s->n; j += SIDE)
    for (int64_t k0 = 0; k0 < s->k; k0 += s->kc)
      for (int64_t i = 0; i < s->m; i += SIDE) {
        const int64_t depth = at_most(s->kc, s->k - k0), rows = at_most(SIDE, s->m - i);
        const int64_t width = at_most(SIDE, s->n - j), vectors = (width + TILE - 1) / TILE;
        const volta_pack_b pack_b = {.b = (const char *)b + (k0 * s->b_rs + j * s->b_cs) * size,
                                     .rs = s->b_rs,
                                     .cs = s->b_cs,
                                     .depth = depth,
                                     .width = width,
                                     .nr = SIDE,
                                     .group = s->group,
                                     .out = panel};
        const int64_t first[2] = {0, rows};
        volta_pack_a pack_a = {.a = (const char *)a + (i * s->a_rs + k0 * s->a_cs) * size,
                               .rs = s->a_rs,
                               .cs = s->a_cs,
                               .tiles = 1,
                               .first = first,
                               .depth = depth,
                               .pitch = (words + 15) / 16 * 16,
                               .group = s->group,
                               .out = sliver};
        code->pack_b(&pack_b);
        code->pack_a(&pack_a);
        const volta_tile_call call = {.a = sliver,
                                      .b = panel,
                                      .c = c + i * s->c_rs + j,
                                      .a_rs = pack_a.out_rs,
                                      .a_cs = pack_a.out_cs,
                                      .b_rs = SIDE,
                                      .c_rs = s->c_rs,
                                      .k = depth,
                                      .rows = rows,
                                      .columns = width - (vectors - 1) * TILE,
                                      .resume = k0 > 0,
                                      .scale =
                                          scale == NULL ? NULL : scale + k0 / s->group * s->n + j,
                                      .scale_rs = s->n,
                                      .group = s->group};
        code->tiles[(call.columns < TILE) * code->masked_stride +
                    (vectors - 1) * code->vectors_stride](&call);
      }
  code->end();
  free(sliver);
  free(panel);
#ifdef VOLTA_AMX_EMULATED
  return amx_misuse ? 2 : 0;
#else
  return 0;
#endif
}
