/* What the kernels of quilts share: the sizes of packed rows, and a walk over all places of a table. */

#ifndef QUILTDP_QUILTS_H
#define QUILTDP_QUILTS_H

#include <stdint.h>

typedef int64_t I;

enum { MOST_NEARBY = 12, MOST_AXES = 64, SLOT = 40, KEPT = 5, COMPONENT = 16 };
#define BIG 1e150

/* Go to the next place of all axes but the last; 0 when all were visited. */
static inline int next_place(I *index, I last, const I *length, const I *step, double **to) {
    for (I a = last - 1; a >= 0; a--) {
        *to += step[a];
        if (++index[a] < length[a]) return 1;
        *to -= step[a] * length[a];
        index[a] = 0;
    }
    return 0;
}

#endif
