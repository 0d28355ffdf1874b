/* The prototype of every reference kernel, from the manifest: a vector version falls back to it
 * for the layouts it does not handle. */
#ifndef VOLTA_TARGETS_H
#define VOLTA_TARGETS_H

#include "../volta.h"

#define VOLTA_KERNEL(NAME, name) int volta_##name##_ref(const volta_call *call);
#include "../kernels.def"
#undef VOLTA_KERNEL

#endif
