/* Walking over strided views: axes that can be walked as one are merged first. */
#ifndef VOLTA_STRIDED_H
#define VOLTA_STRIDED_H

#include "../volta.h"

/* The axes of one view, or of two views of the same shape, outermost first. */
typedef struct {
  int rank;
  int64_t size[VOLTA_MAX_RANK];
  int64_t stride[2][VOLTA_MAX_RANK]; /* [view][axis], in elements */
} volta_walk;

/* Drops axes of length 1 and merges two axes where every view steps from one to the next evenly:
 * stride[outer] == stride[inner] * size[inner]. `b` may be NULL. Row-major order is kept. */
static inline volta_walk volta_walk_of(const volta_operand *a, const volta_operand *b) {
  volta_walk w = {.rank = 0};
  for (int32_t axis = 0; axis < a->rank; axis++) {
    const int64_t size = a->shape[axis];
    const int64_t stride[2] = {a->stride[axis], b ? b->stride[axis] : 0};
    if (size == 1) continue;
    const int outer = w.rank - 1;
    if (outer >= 0 && w.stride[0][outer] == stride[0] * size &&
        (!b || w.stride[1][outer] == stride[1] * size)) {
      w.size[outer] *= size;
    } else {
      w.size[w.rank++] = size;
    }
    w.stride[0][w.rank - 1] = stride[0];
    w.stride[1][w.rank - 1] = stride[1];
  }
  return w;
}

/* Offset of flat element i in a view; `at` receives its coordinates. */
static inline int64_t volta_walk_to(const volta_walk *w, int view, int64_t i,
                                    int64_t at[VOLTA_MAX_RANK]) {
  int64_t offset = 0;
  for (int axis = w->rank - 1; axis >= 0; axis--) {
    at[axis] = i % w->size[axis];
    i /= w->size[axis];
    offset += at[axis] * w->stride[view][axis];
  }
  return offset;
}

/* The next coordinates over axes 0 .. axes-1, row-major; adds the change to the views' offsets. */
static inline void volta_walk_next(const volta_walk *w, int axes, int64_t at[VOLTA_MAX_RANK],
                                   int64_t offset[2]) {
  for (int axis = axes - 1; axis >= 0; axis--) {
    offset[0] += w->stride[0][axis];
    offset[1] += w->stride[1][axis];
    if (++at[axis] < w->size[axis]) return;
    at[axis] = 0;
    offset[0] -= w->stride[0][axis] * w->size[axis];
    offset[1] -= w->stride[1][axis] * w->size[axis];
  }
}

#endif
