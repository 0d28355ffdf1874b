/* Questions about the table of register tiles (matmul_tiles.def), for the tuner and for tests. */
#ifndef VOLTA_MATMUL_TILES_H
#define VOLTA_MATMUL_TILES_H

#include <stdint.h>

/* Tiles of rows in one chunk of A, at most. */
#define VOLTA_CHUNK_LIMIT 128

typedef struct {
  const char *code;
  int32_t kind, isa, available;
  int32_t mr, nr, kc, mc, nc, ahead;
} volta_tile_facts;

/* 1 and the facts of tile `id`, counted from 1; 0 where there is none. */
int volta_tile_row(int32_t id, volta_tile_facts *facts);
/* The constraint that the row breaks; NULL: none. */
const char *volta_tile_problem(int32_t id);

/* Bytes of w [k, n] as the pack kernel orders it for tile `tile`, for A of `kind`, and groups of N10;
 * -1 where there is no such tile. */
int64_t volta_packed_bytes(int32_t tile, int32_t kind, int isa, int64_t k, int64_t n,
                           int64_t group);

#endif
