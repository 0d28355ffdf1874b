/* The table of register tiles, and which of them a step may use here. */
#include "matmul_tile.h"

#include <stddef.h>

#include "../cpu_info.h"
#include "matmul_tiles.h"
#include "x86.h"

#if defined(VOLTA_X86)
#define VOLTA_TILE_ROW(code, mr, nr, kc, mc, nc, ahead, where) \
  extern const volta_matmul_code volta_##code;
#include "matmul_tiles.def"
#undef VOLTA_TILE_ROW

#define ANY VOLTA_NEEDS_NOTHING
#define HALVES VOLTA_NEEDS_HALVES
#define WHOLE VOLTA_NEEDS_WHOLE
#define VOLTA_TILE_ROW(code, mr, nr, kc, mc, nc, ahead, where) \
  {#code, &volta_##code, mr, nr, kc, mc, nc, ahead, where},
static const volta_matmul_family families[] = {
#include "matmul_tiles.def"
};
#undef VOLTA_TILE_ROW
#define FAMILIES ((int32_t)(sizeof families / sizeof *families))
#else
static const volta_matmul_family families[1];
#define FAMILIES 0
#endif

/* AMX adds to AVX-512: what it has no tiles for runs there. */
static int runs_under(const volta_matmul_code *code, int32_t isa) {
  return code->isa == isa || (isa == VOLTA_ISA_AMX && code->isa == VOLTA_ISA_AVX512);
}

static int available(const volta_matmul_family *family) {
  return volta_cpu_isa_supported(family->code->isa) && volta_cpu_has(family->code->needs) &&
         volta_cpu_has(family->needs);
}

const volta_matmul_family *volta_matmul_family_of(int32_t id, int32_t kind, int32_t isa) {
  for (int32_t i = 0; i < FAMILIES; i++) {
    const volta_matmul_code *code = families[i].code;
    if (id != 0 && id != i + 1) continue;
    if (code->kind == kind && runs_under(code, isa) && available(&families[i])) return &families[i];
  }
  return NULL;
}

const volta_matmul_code *volta_matmul_streams(int32_t kind, int32_t isa) {
#if defined(VOLTA_X86)
  if (kind == VOLTA_CODE_F32) return isa == VOLTA_ISA_AVX2 ? &volta_f32_avx2 : &volta_f32_avx512;
  if (kind == VOLTA_CODE_BF16) return isa == VOLTA_ISA_AVX2 ? &volta_bf16_avx2 : &volta_bf16_avx512;
#endif
  (void)kind, (void)isa;
  return NULL;
}

int volta_tile_row(int32_t id, volta_tile_facts *facts) {
  if (id < 1 || id > FAMILIES) return 0;
  const volta_matmul_family *family = &families[id - 1];
  *facts = (volta_tile_facts){
      .code = family->name,
      .kind = family->code->kind,
      .isa = family->code->isa,
      .available = available(family),
      .mr = family->mr,
      .nr = family->nr,
      .kc = family->kc,
      .mc = family->mc,
      .nc = family->nc,
      .ahead = family->ahead,
  };
  return 1;
}

const char *volta_tile_problem(int32_t id) {
  if (id < 1 || id > FAMILIES) return "there is no such tile";
  const volta_matmul_family *family = &families[id - 1];
  const volta_matmul_code *code = family->code;
  const int32_t vectors = family->nr / code->width;
  if (family->nr % code->width != 0) return "nr is not a whole number of vectors";
  if (vectors < 1 || vectors > code->vectors_limit) return "nr has no compiled tile";
  for (int32_t v = 0; v < vectors; v++)
    if (family->mr > code->rows_limit[v]) return "mr has no compiled tile";
  if (family->kc % 32 != 0 || family->kc < 32) return "kc is not a multiple of 32";
  if (family->mc < family->mr) return "mc is smaller than mr";
  if (family->mc / family->mr > VOLTA_CHUNK_LIMIT) return "mc holds too many tiles";
  if (family->nc % family->nr != 0) return "nc is not a multiple of nr";
  return NULL;
}
