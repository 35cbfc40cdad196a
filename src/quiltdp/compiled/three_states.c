/* Transports between the laws of a node with three states: quiltdp.accountant.leakage.three_states.
 *
 * Its twins there and in .kernel say what everything means; the same operations in the same order give the
 * same bytes, and every exponential and logarithm comes from numpy, between two calls.  Problem r compares
 * the laws at z[r] and y[r] of what is known in part e[r]: law (parts, count, 3), costs d (problems, 3, 3).
 */
#include <stdint.h>

#define EPS 2.220446049250313e-16

static double least(double a, double b) { return a < b ? a : b; }

static double most(double a, double b) { return a > b ? a : b; }

/* Add a child's messages, below (its parts, states, states): part (parts) is its part of what is known,
 * seen (count, 3) the state it sees. */
int64_t qd_three_below(int64_t problems, int64_t states, const int64_t *e, const int64_t *z, const int64_t *y,
                       const double *below, const int64_t *part, const int64_t *seen, double *d)
{
    for (int64_t r = 0; r < problems; r++) {
        const double *table = below + part[e[r]] * states * states;
        const int64_t *here = seen + 3 * z[r], *there = seen + 3 * y[r];
        for (int i = 0; i < 3; i++) {
            const double *row = table + here[i] * states;
            for (int j = 0; j < 3; j++)
                d[9 * r + 3 * i + j] += row[there[j]];
        }
    }
    return 0;
}

/* Round the costs up, give impossible states those of a possible one, and tell the largest (top), the least
 * that needs no search (ceiling) and where nothing moves (still); high and low are logarithms of the laws,
 * rounded up and down.  Return which states are possible somewhere: bits 0 to 2 of p, 3 to 5 of q. */
int64_t qd_three_ready(int64_t problems, int64_t count, const int64_t *e, const int64_t *z, const int64_t *y,
                       const double *law, const double *high, const double *low, double factor, double *d, double *top, double *ceiling, uint8_t *still)
{
    int64_t possible = 0;
    for (int64_t r = 0; r < problems; r++) {
        int64_t from = 3 * (e[r] * count + z[r]), to = 3 * (e[r] * count + y[r]);
        const double *p = law + from, *q = law + to;
        double *c = d + 9 * r;
        int first_p = p[0] > 0 ? 0 : p[1] > 0 ? 1 : 2, first_q = q[0] > 0 ? 0 : q[1] > 0 ? 1 : 2;
        for (int k = 0; k < 9; k++)
            c[k] = c[k] * factor;
        for (int i = 0; i < 3; i++) {
            possible |= (int64_t)(p[i] > 0) << i | (int64_t)(q[i] > 0) << (3 + i);
            if (!(p[i] > 0))
                for (int j = 0; j < 3; j++)
                    c[3 * i + j] = c[3 * first_p + j];
        }
        for (int j = 0; j < 3; j++)
            if (!(q[j] > 0))
                for (int i = 0; i < 3; i++)
                    c[3 * i + j] = c[3 * i + first_q];
        double all = c[0];
        for (int k = 1; k < 9; k++)
            all = most(all, c[k]);
        double moved = c[0] + high[from] - low[to];
        int same = p[0] == q[0] && c[0] == 0.0;
        for (int k = 1; k < 3; k++) {
            moved = most(moved, c[4 * k] + high[from + k] - low[to + k]);
            same = same && p[k] == q[k] && c[4 * k] == 0.0;
        }
        top[r] = all;
        ceiling[r] = most(least(all, moved * (1 + 8 * EPS) + 1e-12), 0.0);
        still[r] = (uint8_t)same;
    }
    return possible;
}

/* The largest Σ p x / Σ q y over the trees of three sources and three sinks, 1 at least: best (problems), of
 * raised, the exponentials of the costs. */
int64_t qd_three_best(int64_t problems, int64_t count, const int64_t *e, const int64_t *z, const int64_t *y,
                      const double *law, const double *raised, double *best)
{
    for (int64_t r = 0; r < problems; r++) {
        const double *p = law + 3 * (e[r] * count + z[r]), *q = law + 3 * (e[r] * count + y[r]);
        const double *c = raised + 9 * r;
        double to_one[3], to_two[3], across[3], by_two[3][3], weighed[3], found = 1.0;
        for (int t = 0; t < 3; t++) {
            to_one[t] = c[3 * t] / c[3 * t + 1];
            to_two[t] = c[3 * t] / c[3 * t + 2];
            across[t] = c[3 * t + 1] / c[3 * t + 2];
            weighed[t] = q[2] * to_two[t];
            for (int i = 0; i < 3; i++)
                by_two[t][i] = c[3 * i + 2] * to_two[t];
        }
        for (int s = 0; s < 3; s++) { /* 0 and 1 tie at s */
            double least_of[3], partly = q[0] + q[1] * to_one[s];
            for (int i = 0; i < 3; i++)
                least_of[i] = least(c[3 * i], c[3 * i + 1] * to_one[s]);
            for (int t = 0; t < 3; t++) {
                double above = p[0] * least(least_of[0], by_two[t][0]);
                above = above + p[1] * least(least_of[1], by_two[t][1]);
                above = above + p[2] * least(least_of[2], by_two[t][2]);
                found = most(found, above / (partly + weighed[t]));
                if (s != t) {
                    double w = to_one[s] * across[t];
                    above = p[0] * least(least_of[0], c[2] * w);
                    above = above + p[1] * least(least_of[1], c[5] * w);
                    above = above + p[2] * least(least_of[2], c[8] * w);
                    found = most(found, above / (partly + q[2] * w));
                }
            }
        }
        for (int s = 0; s < 3; s++) { /* 0 and 2 tie at s */
            double least_of[3];
            for (int i = 0; i < 3; i++)
                least_of[i] = least(c[3 * i], by_two[s][i]);
            for (int t = 0; t < 3; t++) {
                if (s == t)
                    continue;
                double w = to_two[s] / across[t];
                double above = p[0] * least(least_of[0], c[1] * w);
                above = above + p[1] * least(least_of[1], c[4] * w);
                above = above + p[2] * least(least_of[2], c[7] * w);
                found = most(found, above / (q[0] + q[1] * w + weighed[s]));
            }
        }
        best[r] = found;
    }
    return 0;
}
