/* Closed forms of quiltdp.accountant.leakage.kernel for two or three states: all pairs of groups of one stage
   (quiltdp.accountant.leakage.summing_out); beside them the largest distance over clique states. Every sum is taken in the order of the twin in numpy; logarithms and
   exponentials come from there. */

#include <math.h>
#include <stdint.h>

static double larger(double a, double b) { return (a >= b || a != a) ? a : b; }
static double smaller(double a, double b) { return (a <= b || a != a) ? a : b; }

/* The smaller of two numbers, neither of them NaN: here e is finite. */
static double lesser(double a, double b) { return a < b ? a : b; }

/* The larger of best and above / below; a quotient that is clearly smaller is not computed. */
static double raised(double best, double above, double below) {
    return above < best * below * (1.0 - 8.881784197001252e-16) ? best : larger(best, above / below);
}

/* Raise best to the ratio at every vertex for two sinks. */
static double two(const double *p, const double *q, double (*e)[3]) {
    double best = 1.0;
    for (int t = 0; t < 2; t++) {
        double z = e[t][0] / e[t][1];
        double above = p[0] * lesser(e[0][0], e[0][1] * z) + p[1] * lesser(e[1][0], e[1][1] * z);
        best = raised(best, above, q[0] + q[1] * z);
    }
    return best;
}

/* The same for three sinks and three sources. */
static double three(const double *p, const double *q, double (*e)[3]) {
    double best = 1.0, to_one[3], to_two[3], across[3], by_two[3][3], weighed[3], least[3];
    for (int t = 0; t < 3; t++) {
        to_one[t] = e[t][0] / e[t][1];
        to_two[t] = e[t][0] / e[t][2];
        across[t] = e[t][1] / e[t][2];
        weighed[t] = q[2] * to_two[t];
        for (int i = 0; i < 3; i++) by_two[t][i] = e[i][2] * to_two[t];
    }
    for (int s = 0; s < 3; s++) { /* 0 and 1 tie at s */
        for (int i = 0; i < 3; i++) least[i] = lesser(e[i][0], e[i][1] * to_one[s]);
        double partly = q[0] + q[1] * to_one[s];
        for (int t = 0; t < 3; t++) {
            double above = p[0] * lesser(least[0], by_two[t][0]);
            above = above + p[1] * lesser(least[1], by_two[t][1]);
            above = above + p[2] * lesser(least[2], by_two[t][2]);
            best = raised(best, above, partly + weighed[t]);
            if (s == t) continue;
            double z = to_one[s] * across[t];
            above = p[0] * lesser(least[0], e[0][2] * z);
            above = above + p[1] * lesser(least[1], e[1][2] * z);
            above = above + p[2] * lesser(least[2], e[2][2] * z);
            best = raised(best, above, partly + q[2] * z);
        }
    }
    for (int s = 0; s < 3; s++) { /* 0 and 2 tie at s */
        for (int i = 0; i < 3; i++) least[i] = lesser(e[i][0], by_two[s][i]);
        for (int t = 0; t < 3; t++) {
            if (s == t) continue;
            double z = to_two[s] / across[t];
            double above = p[0] * lesser(least[0], e[0][1] * z);
            above = above + p[1] * lesser(least[1], e[1][1] * z);
            above = above + p[2] * lesser(least[2], e[2][1] * z);
            best = raised(best, above, q[0] + q[1] * z + weighed[s]);
        }
    }
    return best;
}

/* d and e = exp d: (problems, states, states). members, law, above, below: (groups, width), width 2 or 3.
   left, right: pairs of groups. Returns in (problems, pairs): top, the largest distance; best, the ratio of
   the closed form; most, what needs no search; the last two only where they count. */
int64_t qd_closed_stage(const double *d, const double *e, int64_t problems, int64_t states,
                        const int64_t *members, const double *law, const double *above, const double *below,
                        int64_t width, const int64_t *left, const int64_t *right, int64_t pairs, double eps,
                        double *top, double *best, double *most) {
    for (int64_t b = 0; b < problems; b++) {
        const double *db = d + b * states * states, *eb = e + b * states * states;
        for (int64_t k = 0; k < pairs; k++) {
            const int64_t *from = members + left[k] * width, *to = members + right[k] * width;
            double cells[3][3], largest = db[from[0] * states + to[0]];
            for (int i = 0; i < width; i++)
                for (int j = 0; j < width; j++)
                    largest = larger(largest, db[from[i] * states + to[j]]);
            int64_t at = b * pairs + k;
            top[at] = largest;
            best[at] = 1.0;
            most[at] = 0.0;
            if (left[k] == right[k] || largest <= 0.0) continue;
            for (int i = 0; i < width; i++)
                for (int j = 0; j < width; j++) cells[i][j] = eb[from[i] * states + to[j]];
            const double *p = law + left[k] * width, *q = law + right[k] * width;
            best[at] = width == 2 ? two(p, q, cells) : three(p, q, cells);
            const double *into = above + left[k] * width, *out = below + right[k] * width;
            double moved = db[from[0] * states + to[0]] + into[0] - out[0];
            for (int i = 1; i < width; i++)
                moved = larger(moved, db[from[i] * states + to[i]] + into[i] - out[i]);
            most[at] = larger(smaller(largest, moved * (1.0 + 8.0 * eps) + 1e-12), 0.0);
        }
    }
    return 0;
}

/* Put together what a stage says: value = ln best on the way in, the distances on the way out. */
int64_t qd_closed_finish(double *value, const double *most, const double *top, const int64_t *left,
                         const int64_t *right, const uint8_t *thin, int64_t problems, int64_t pairs,
                         double rounding, double slack) {
    for (int64_t b = 0; b < problems; b++)
        for (int64_t k = 0; k < pairs; k++) {
            int64_t at = b * pairs + k;
            double found = smaller(smaller(value[at] + rounding, most[at]) + slack, top[at]);
            if (left[k] == right[k] || top[at] <= 0.0) found = 0.0;
            value[at] = thin[k] ? top[at] : found;
        }
    return 0;
}

/* The largest d over the states of every pair (z, z'): states (known, tops, each), best (tops, tops). */
int64_t qd_ceiling(const double *d, int64_t n, const int64_t *states, int64_t known, int64_t tops,
                   int64_t each, double *best) {
    for (int64_t a = 0; a < known; a++) {
        const int64_t *here = states + a * tops * each;
        for (int64_t z = 0; z < tops; z++)
            for (int64_t y = 0; y < tops; y++) {
                double largest = best[z * tops + y];
                for (int64_t i = 0; i < each; i++) {
                    const double *row = d + here[z * each + i] * n;
                    for (int64_t j = 0; j < each; j++) largest = larger(largest, row[here[y * each + j]]);
                }
                best[z * tops + y] = largest;
            }
    }
    return 0;
}

/* Put values at their places in mu (known, tops, tops, width, width), elsewhere minus infinity; most: the
   largest over the last two axes; found (tops, tops) is raised to the largest where both points are one. */
int64_t qd_placed(const double *values, const int64_t *place, int64_t count, int64_t tops, int64_t width,
                  int64_t known, double *mu, double *most, double *found) {
    int64_t pairs = tops * tops, square = width * width;
    for (int64_t k = 0; k < known * pairs * square; k++) mu[k] = -INFINITY;
    for (int64_t k = 0; k < count; k++) mu[place[k]] = values[k];
    for (int64_t k = 0; k < known; k++)
        for (int64_t z = 0; z < pairs; z++) {
            const double *here = mu + (k * pairs + z) * square;
            double largest = here[0];
            for (int64_t u = 1; u < square; u++) largest = larger(largest, here[u]);
            for (int64_t u = 0; u < width; u++) found[z] = larger(found[z], here[u * width + u]);
            most[k * pairs + z] = largest;
        }
    return 0;
}
