/* The points (p'(T), p(T)) of pairs of rows that are not below a hull: quiltdp.accountant.leakage.threshold.
   Sums are taken in the order of the twin in numpy, and the chord is that of numpy.interp. */

#include <stdint.h>

/* first: (ones, states), rows: (others, states), order: (ones, others, states), the states of every pair from
   the largest ratio to the smallest. way 1: sums of p = first over those of q = rows from the front;
   way -1: sums of q over those of p from the back. b, t: the hull with its last end, so many corners;
   slope: of the edges after each corner but the last. Points whose top exceeds the bottom and is at least
   keep times the chord are written to found, (bottom, top) each, while there is room. Returns how many
   there are. */
int64_t qd_threshold_above(const double *first, const double *rows, const int64_t *order, int64_t ones,
                           int64_t others, int64_t states, int64_t way, const double *b, const double *t,
                           const double *slope, int64_t corners, double keep, double *found, int64_t room) {
    int64_t count = 0;
    for (int64_t i = 0; i < ones; i++) {
        for (int64_t j = 0; j < others; j++) {
            const double *up = way > 0 ? first + i * states : rows + j * states;
            const double *down = way > 0 ? rows + j * states : first + i * states;
            const int64_t *at = order + (i * others + j) * states + (way > 0 ? 0 : states - 1);
            double top = 0.0, bottom = 0.0;
            int64_t edge = 0;
            for (int64_t k = 0; k + 1 < states; k++, at += way) {
                top += up[*at];
                bottom += down[*at];
                if (!(top > bottom)) continue;
                double chord;
                if (corners == 0) {
                    chord = 0.0;
                } else if (bottom < b[0]) {
                    chord = b[0] > 0 ? bottom / b[0] * t[0] : 0.0;
                } else {
                    while (edge + 1 < corners && bottom >= b[edge + 1]) edge++; /* sums only grow */
                    if (edge + 1 == corners || bottom == b[edge]) chord = t[edge];
                    else chord = slope[edge] * (bottom - b[edge]) + t[edge];
                }
                if (!(top >= chord * keep)) continue;
                if (count < room) {
                    found[2 * count] = bottom;
                    found[2 * count + 1] = top;
                }
                count++;
            }
        }
    }
    return count;
}
