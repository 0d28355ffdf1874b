/* The parts of a fast matmul that differ between element types and instruction sets: register tiles
 * and the copies that feed them. The driver (matmul.c) knows them only through these tables.
 *
 * A *tile* is mr rows by nr columns of C, held in registers while k goes by. A *code* is what one
 * source file gives for one element type: its tiles for every size up to the largest, its copies.
 * A *family* is one row of matmul_tiles.def: a code, the size of the tile and the sizes of blocks.
 *
 * Distances (`_rs`, `_cs`, `nr`) count words of four bytes: an f32 in f32 codes; two bf16 or four
 * int8 of one row in those that multiply pairs or quadruples of k.
 */
#ifndef VOLTA_MATMUL_TILE_H
#define VOLTA_MATMUL_TILE_H

#include "../volta.h"

/* The contraction of one tile over one K block, for all codes. */
typedef struct {
  const void *a, *b;
  float *c;
  int64_t a_rs, a_cs, b_rs, c_rs;
  int64_t k;
  int64_t rows; /* only codes that are not compiled per number of rows look */
  int64_t columns; /* of the last vector; only masked tiles look */
  int64_t resume; /* 0: sums start at +0; 1: they continue from C */
  int64_t ahead; /* rows of B fetched before they are needed */
  /* N10: every `group` of k has its own scale of each column; scales of groups are scale_rs apart. */
  const float *scale;
  int64_t scale_rs, group;
} volta_tile_call;

typedef void (*volta_tile)(const volta_tile_call *call);

/* A block of B into panels: columns [0, width) of rows [0, depth). nr: columns of a panel. */
typedef struct {
  const void *b;
  int32_t dtype;
  int64_t rs, cs; /* element (k, j) at k * rs + j * cs elements */
  int64_t depth, width, nr;
  int64_t group; /* N10: depth is a multiple of it */
  void *out;
} volta_pack_b;

/* Rows of A for some tiles, one after the other: columns [0, depth). Tile t has rows first[t] ..
 * first[t + 1] - 1, first[0] is 0; its copy begins first[t] * pitch words into `out`. */
typedef struct {
  const void *a;
  int64_t rs, cs;
  int64_t depth, pitch;
  int64_t group;
  int64_t tiles;
  const int64_t *first; /* [tiles + 1] */
  void *out;
  int64_t out_rs, out_cs; /* results: how a tile reads its copy; out_cs 0: its own number of rows */
} volta_pack_a;

/* A few rows of A by B in place: C[rows, width] over all of k. b_s: the stride of B that is not 1. */
typedef struct {
  const void *a, *b;
  float *c;
  int64_t a_rs, a_cs, b_s, c_rs;
  int64_t width, k;
  const float *scale;
  int64_t scale_rs, group;
} volta_few_call;

typedef void (*volta_few)(const volta_few_call *call);

/* The clauses and what A and B hold. */
enum {
  VOLTA_CODE_F32, /* N1: A f32; B f32, bf16 or (N10, weights only) int8 */
  VOLTA_CODE_BF16, /* N9: A and B bf16 */
  VOLTA_CODE_I8, /* N10: A and B int8 */
  VOLTA_CODE_KINDS
};

/* What a processor must have, or be, beside the instruction set. */
enum {
  VOLTA_NEEDS_NOTHING,
  VOLTA_NEEDS_BF16_DOT, /* VDPBF16PS, and that it is two steps of a chain of N9: matmul_dot.c */
  VOLTA_NEEDS_VNNI,
  VOLTA_NEEDS_AMX,
  VOLTA_NEEDS_HALVES, /* 512 bits are computed in two halves */
  VOLTA_NEEDS_WHOLE, /* they are not */
  VOLTA_NEEDS_COUNT
};

/* 1 when this processor's VDPBF16PS does what N9 wants of it; asked once, where the instruction exists. */
int volta_bf16_dot_is_n9(void);

#define VOLTA_FEW_LIMIT 8

typedef struct {
  int32_t kind, isa, needs;
  int32_t width; /* columns of a vector */
  int32_t unit; /* k of one segment (N9: 32, N10: a group) is padded to its multiple */
  int32_t k_bytes_a, k_bytes_b; /* bytes of one k of a packed row or column */
  int32_t extra; /* bytes of a packed row at the end of each segment */
  int32_t rows_beyond; /* rows of copied A that are read after the last, whatever they hold */
  int32_t rate; /* products per instruction, against f32: what a copy is worth */
  int32_t flushes; /* its tiles run with subnormals flushed (N9) */
  int32_t vectors_limit; /* widest tile */
  int32_t rows_limit[4]; /* tallest tile, by number of vectors - 1 */
  /* By masked, number of vectors - 1 and, where there is one for each, number of rows - 1; scaled:
   * N10 with f32 A, NULL where there is none. */
  const volta_tile *tiles, *scaled;
  int32_t masked_stride, vectors_stride, rows_stride;
  void (*pack_a)(volta_pack_a *pack);
  void (*pack_b)(const volta_pack_b *pack);
  /* By dtype of B, then number of rows - 1; NULL: none. turned: B by columns. */
  const volta_few *few[4], *few_turned[4];
  int32_t few_rows, few_turned_rows;
  void (*begin)(void), (*end)(void); /* around the tiles of one thread; NULL: nothing to do */
} volta_matmul_code;

/* mr x nr: the register tile. mc x kc: the block of A that stays in L2 while panels of B, kc x nr,
 * pass over it from L1. kc x nc: the block of B that is packed at a time and stays in L3. */
typedef struct {
  const char *name;
  const volta_matmul_code *code;
  int32_t mr, nr, kc, mc, nc, ahead;
  int32_t needs; /* beside what its code does */
} volta_matmul_family;

/* Family `id`, counted from 1 in the order of matmul_tiles.def; NULL where this processor lacks what
 * it needs, or under another instruction set than its own. id 0: the first for this kind. */
const volta_matmul_family *volta_matmul_family_of(int32_t id, int32_t kind, int32_t isa);

/* The code whose `few` read B in place under this instruction set; NULL: none. */
const volta_matmul_code *volta_matmul_streams(int32_t kind, int32_t isa);

#endif
