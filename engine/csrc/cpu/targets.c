/* The tables of targets.def, one per instruction set. Where the vector kernels are not compiled,
 * every column is the reference. */
#include "targets.h"

#include "x86.h"

#define VOLTA_TARGET(KERNEL, ref, avx2, avx512) \
  int volta_##ref(const volta_call *); \
  int volta_##avx2(const volta_call *); \
  int volta_##avx512(const volta_call *);
#define VOLTA_TARGET_WORKSPACE(KERNEL, ref, avx2, avx512) \
  int64_t volta_##ref(const volta_step *, const volta_operand *, int, int); \
  int64_t volta_##avx2(const volta_step *, const volta_operand *, int, int); \
  int64_t volta_##avx512(const volta_step *, const volta_operand *, int, int);
#include "targets.def"
#undef VOLTA_TARGET
#undef VOLTA_TARGET_WORKSPACE

void volta_chain_rows_ref(const volta_call *, const volta_chain_register *, int64_t, int64_t);
void volta_chain_rows_avx2(const volta_call *, const volta_chain_register *, int64_t, int64_t);
void volta_chain_rows_avx512(const volta_call *, const volta_chain_register *, int64_t, int64_t);

enum {
#define VOLTA_TARGET(KERNEL, ref, avx2, avx512) VOLTA_ROW_##KERNEL,
#define VOLTA_TARGET_WORKSPACE(KERNEL, ref, avx2, avx512)
#include "targets.def"
#undef VOLTA_TARGET
#undef VOLTA_TARGET_WORKSPACE
  VOLTA_ROW_COUNT
};
_Static_assert((int)VOLTA_ROW_COUNT == (int)VOLTA_KERNEL_COUNT, "targets.def has a row per kernel");

#define VOLTA_RUN(KERNEL, function) [VOLTA_KERNEL_##KERNEL].run = volta_##function,
#define VOLTA_SPACE(KERNEL, function) [VOLTA_KERNEL_##KERNEL].workspace = volta_##function,

static const volta_kernel_row ref_kernels[VOLTA_KERNEL_COUNT] = {
#define VOLTA_TARGET(KERNEL, ref, avx2, avx512) VOLTA_RUN(KERNEL, ref)
#define VOLTA_TARGET_WORKSPACE(KERNEL, ref, avx2, avx512) VOLTA_SPACE(KERNEL, ref)
#include "targets.def"
#undef VOLTA_TARGET
#undef VOLTA_TARGET_WORKSPACE
};

#if defined(VOLTA_X86)
static const volta_kernel_row avx2_kernels[VOLTA_KERNEL_COUNT] = {
#define VOLTA_TARGET(KERNEL, ref, avx2, avx512) VOLTA_RUN(KERNEL, avx2)
#define VOLTA_TARGET_WORKSPACE(KERNEL, ref, avx2, avx512) VOLTA_SPACE(KERNEL, avx2)
#include "targets.def"
#undef VOLTA_TARGET
#undef VOLTA_TARGET_WORKSPACE
};

static const volta_kernel_row avx512_kernels[VOLTA_KERNEL_COUNT] = {
#define VOLTA_TARGET(KERNEL, ref, avx2, avx512) VOLTA_RUN(KERNEL, avx512)
#define VOLTA_TARGET_WORKSPACE(KERNEL, ref, avx2, avx512) VOLTA_SPACE(KERNEL, avx512)
#include "targets.def"
#undef VOLTA_TARGET
#undef VOLTA_TARGET_WORKSPACE
};

/* AMX has tiles for matmul alone, which its driver finds by the instruction set of the call. */
const volta_kernel_row *const volta_targets[VOLTA_ISA_COUNT] = {ref_kernels, avx2_kernels,
                                                                avx512_kernels, avx512_kernels};
const volta_chain_rows volta_chain_rows_of[VOLTA_ISA_COUNT] = {
    volta_chain_rows_ref, volta_chain_rows_avx2, volta_chain_rows_avx512, volta_chain_rows_avx512};
#else
const volta_kernel_row *const volta_targets[VOLTA_ISA_COUNT] = {ref_kernels, ref_kernels,
                                                                ref_kernels, ref_kernels};
const volta_chain_rows volta_chain_rows_of[VOLTA_ISA_COUNT] = {
    volta_chain_rows_ref, volta_chain_rows_ref, volta_chain_rows_ref, volta_chain_rows_ref};
#endif
