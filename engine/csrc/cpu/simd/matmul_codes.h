/* What one instruction set gives: N1, and N9 and N10 by multiplications that every such processor has. */
const volta_matmul_code CODE(f32) = {
    .kind = VOLTA_CODE_F32,
    .isa = CODE_ISA,
    .width = WIDTH,
    .unit = 1,
    .k_bytes_a = 4,
    .k_bytes_b = 4,
    .rate = 1,
    TILE_TILES,
    .pack_a = pack_a_f32,
    .pack_b = pack_b_f32,
    .few = {[VOLTA_F32] = few_F32, [VOLTA_BF16] = few_BF16, [VOLTA_I8] = few_I8},
    .few_turned = {[VOLTA_F32] = few_turned_F32,
                   [VOLTA_BF16] = few_turned_BF16,
                   [VOLTA_I8] = few_turned_I8},
    .few_rows = FEW_ROWS,
    .few_turned_rows = FEW_ROWS_TURNED,
};

const volta_matmul_code CODE(bf16) = {
    .kind = VOLTA_CODE_BF16,
    .isa = CODE_ISA,
    .width = WIDTH,
    .unit = BLOCK_K,
    .k_bytes_a = 4 * BLOCK_WORDS / BLOCK_K,
    .k_bytes_b = 4 * BLOCK_WORDS / BLOCK_K,
    .rate = 1,
    .flushes = 1,
    CHAIN_TILES,
    .pack_a = pack_a_bf16,
    .pack_b = pack_b_bf16,
    .few = {[VOLTA_BF16] = few_chains},
    .few_rows = CHAIN_FEW_ROWS,
};

const volta_matmul_code CODE(i8) = {
    .kind = VOLTA_CODE_I8,
    .isa = CODE_ISA,
    .width = WIDTH,
    .unit = WORD_K,
    .k_bytes_a = WORD_BYTES,
    .k_bytes_b = WORD_BYTES,
    .rate = 2,
    WORD_TILES,
    .pack_a = pack_a_i8,
    .pack_b = pack_b_i8,
};
