/* Pairs of points of quiltdp.inference.interaction: which of them may be worth most. Row k compares the points of
   block mu_at[k] of mu, with tilts and ranges likewise, for cell[k]; blocks are (width, width). Ceilings are those of
   the twin in numpy, in the order of its sums; what a pair is worth is computed there. */

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { CEILING, A, B, RHO, T, THROUGH, NUMBERS };

static double larger(double a, double b) { return a > b ? a : b; }
static double smaller(double a, double b) { return a < b ? a : b; }

static double above_tanh(double x) {
    double square = x * x;
    return x * (15.0 + square) / (15.0 + 6.0 * square);
}

/* The four cases of points u and v: either end of ln rho at either break point. */
static void cases(const double *mu, const double *tilt, const double *span, int64_t width, int64_t u, int64_t v,
                  double (*found)[NUMBERS]) {
    double one = mu[u * width + u], two = mu[v * width + v], there = mu[u * width + v], back = mu[v * width + u];
    double ends[2] = {tilt[u * width + v], -tilt[v * width + u]}, through = larger(there, back);
    double points[2] = {there - one, two - back};
    double slowly[2] = {above_tanh(0.25 * fabs(ends[0])), above_tanh(0.25 * fabs(ends[1]))};
    for (int p = 0; p < 2; p++) {
        double t = smaller(larger(points[p], -span[v * width + u]), span[u * width + v]);
        double a = smaller(one, there - t), b = smaller(two, back + t);
        double slow = above_tanh(0.25 * fabs(t));
        for (int e = 0; e < 2; e++, found++) {
            double r = ends[e], size = 4.0 + fabs(a) + fabs(b) + fabs(r) + fabs(t), phi = 0.0;
            if (r * t > 0) phi = smaller(fabs(r) * slow, fabs(t) * slowly[e]);
            double ceiling = larger(a, b) + phi + 2.842170943040401e-14 * size;
            double made[NUMBERS] = {smaller(ceiling, through), a, b, r, t, through};
            memcpy(*found, made, sizeof made);
        }
    }
}

/* Whether all that decides points u and v is finite. */
static int fine(const double *mu, const double *tilt, int64_t width, int64_t u, int64_t v) {
    return isfinite(mu[u * width + u]) && isfinite(mu[v * width + v]) && isfinite(mu[u * width + v]) &&
           isfinite(mu[v * width + u]) && isfinite(tilt[u * width + v]) && isfinite(tilt[v * width + u]);
}

/* Raise worth to the corners of pairs that are not fine; put the first case with the largest ceiling into
   best (cells, NUMBERS) where it is larger than what stands there. */
int64_t qd_first_pairs(const double *mu, const int64_t *mu_at, const double *tilt, const int64_t *tilt_at,
                       const double *span, const int64_t *span_at, const int64_t *cell, int64_t rows, int64_t width,
                       double *worth, double *best) {
    double made[4][NUMBERS];
    int64_t block = width * width;
    for (int64_t k = 0; k < rows; k++) {
        const double *m = mu + mu_at[k] * block, *c = tilt + tilt_at[k] * block, *s = span + span_at[k] * block;
        double *w = worth + cell[k], *top = best + cell[k] * NUMBERS;
        for (int64_t u = 0; u < width; u++)
            for (int64_t v = u + 1; v < width; v++) {
                double through = larger(m[u * width + v], m[v * width + u]);
                if (!(through > *w)) continue;
                if (!fine(m, c, width, u, v)) {
                    *w = through;
                    continue;
                }
                if (!(through > top[CEILING])) continue;
                cases(m, c, s, width, u, v, made);
                for (int i = 0; i < 4; i++)
                    if (made[i][CEILING] > top[CEILING]) memcpy(top, made[i], sizeof made[i]);
            }
    }
    return 0;
}

/* Append to others (room, NUMBERS) and their cells, after start, the cases with ceilings above worth, without those
   that stand in best; return where they end, which may be beyond the room: then some are not there. */
int64_t qd_other_pairs(const double *mu, const int64_t *mu_at, const double *tilt, const int64_t *tilt_at,
                       const double *span, const int64_t *span_at, const int64_t *cell, int64_t rows, int64_t width,
                       const double *worth, const double *best, int64_t start, int64_t room, double *others,
                       int64_t *at) {
    double made[4][NUMBERS];
    int64_t block = width * width;
    for (int64_t k = 0; k < rows; k++) {
        const double *m = mu + mu_at[k] * block, *c = tilt + tilt_at[k] * block, *s = span + span_at[k] * block;
        const double w = worth[cell[k]], *top = best + cell[k] * NUMBERS;
        for (int64_t u = 0; u < width; u++)
            for (int64_t v = u + 1; v < width; v++) {
                if (!(larger(m[u * width + v], m[v * width + u]) > w)) continue;
                cases(m, c, s, width, u, v, made); /* fine: others are in */
                for (int i = 0; i < 4; i++) {
                    if (!(made[i][CEILING] > w) || !memcmp(made[i], top, sizeof made[i])) continue;
                    if (start < room) {
                        memcpy(others + start * NUMBERS, made[i], sizeof made[i]);
                        at[start] = cell[k];
                    }
                    start++;
                }
            }
    }
    return start;
}
