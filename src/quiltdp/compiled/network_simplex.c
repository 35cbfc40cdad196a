/* The network simplex of quiltdp.accountant.bounds.network_simplex, many small transports side by side.
 *
 * Its twin there says what everything means.  Both choose the same pivots and give the same bytes: the
 * same operations in the same order, and every exponential comes from numpy, between two calls.
 * Here each problem has its numbers side by side: n sources, m sinks, n + m nodes, n + m - 1 edges.
 * Only qd_simplex_begin, qd_simplex_first and qd_simplex_pivot read arrays that have the problems on their last axis.
 */
#include <math.h>
#include <stdint.h>

#define MOST_NODES 64
#define EPS 2.220446049250313e-16

static const double BITS[16][4] = {
    {0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {1, 1, 0, 0}, {0, 0, 1, 0}, {1, 0, 1, 0}, {0, 1, 1, 0}, {1, 1, 1, 0},
    {0, 0, 0, 1}, {1, 0, 0, 1}, {0, 1, 0, 1}, {1, 1, 0, 1}, {0, 0, 1, 1}, {1, 0, 1, 1}, {0, 1, 1, 1}, {1, 1, 1, 1}};

/* The place of the lowest bit of a number that has one. */
static int64_t lowest(uint64_t bits)
{
#if defined(__GNUC__)
    return __builtin_ctzll(bits);
#else
    int64_t place = 0;
    for (; !(bits & 1); bits >>= 1)
        place++;
    return place;
#endif
}

/* The bits of so many nodes, all 64 of them included. */
static uint64_t all_of(int64_t nodes)
{
    return nodes < 64 ? ((uint64_t)1 << nodes) - 1 : ~(uint64_t)0;
}

/* Spread the costs a little, so that equal ones do not cycle: d (n m, count), costs (count, n m).
 * For every source x as the root: what exponentials qd_simplex_first needs, raised (count, n, m + n), and the
 * sink each source is tied to, tied (count, n, n). */
int64_t qd_simplex_begin(int64_t n, int64_t m, int64_t count, const double *d, const double *jitter,
                      double *costs, double *raised, int64_t *tied)
{
    for (int64_t b = 0; b < count; b++) {
        double *c = costs + b * n * m;
        double top = d[b];
        for (int64_t k = 0; k < n * m; k++) {
            c[k] = d[k * count + b];
            if (c[k] > top)
                top = c[k];
        }
        double spread = 1e-13 * (1.0 + top);
        for (int64_t k = 0; k < n * m; k++)
            c[k] = c[k] + spread * jitter[k];
        for (int64_t x = 0; x < n; x++) {
            const double *root = c + x * m;
            double *out = raised + (b * n + x) * (m + n);
            int64_t *at = tied + (b * n + x) * n;
            double least = root[0];
            for (int64_t j = 1; j < m; j++)
                if (root[j] < least)
                    least = root[j];
            for (int64_t j = 0; j < m; j++)
                out[j] = least - root[j];
            for (int64_t i = 0; i < n; i++) {
                double h = c[i * m] - root[0];
                int64_t best = 0;
                for (int64_t j = 1; j < m; j++) {
                    double other = c[i * m + j] - root[j];
                    if (other < h) {
                        h = other;
                        best = j;
                    }
                }
                out[m + i] = h + least;
                at[i] = best;
            }
        }
    }
    return 0;
}

/* The relative error of masses and their sums. */
static double roundings(int64_t nodes, double top)
{
    return ((double)(8 * nodes + 16) + (double)(4 * nodes * nodes) * top) * EPS;
}

/* ln of H and G of one tree, the largest of the sinks 0: height (n + m). */
static void heights(int64_t n, int64_t m, const double *costs, const int64_t *cell, const int64_t *side,
                    double *height)
{
    int64_t nodes = n + m;
    double h[MOST_NODES + 4] = {0.0};
    for (int64_t e = 0; e < nodes - 1; e++) {
        double cost = costs[cell[e]];
        uint64_t bits = (uint64_t)side[e];
        for (double *four = h; bits; four += 4, bits >>= 4) {
            const double *bit = BITS[bits & 15];
            for (int k = 0; k < 4; k++)
                four[k] += cost * bit[k];
        }
    }
    double top = h[n];
    for (int64_t v = n + 1; v < nodes; v++)
        if (h[v] > top)
            top = h[v];
    for (int64_t v = 0; v < nodes; v++)
        height[v] = h[v] - top;
}

/* The best of those trees: cell (count, n + m - 1) and side, one edge each, and its height (count, n + m). */
int64_t qd_simplex_first(int64_t n, int64_t m, int64_t count, const double *p, const double *q,
                      const double *raised, const int64_t *tied, const double *costs, int64_t *cell,
                      int64_t *side, double *height)
{
    int64_t nodes = n + m;
    int64_t full = (int64_t)all_of(nodes);
    for (int64_t b = 0; b < count; b++) {
        double best = -1.0;
        int64_t root = 0;
        for (int64_t x = 0; x < n; x++) {
            const double *e = raised + (b * n + x) * (m + n);
            double below = q[b] * e[0];
            for (int64_t j = 1; j < m; j++)
                below += q[j * count + b] * e[j];
            double above = p[x * count + b] * e[m + x];
            for (int64_t i = 0; i < n; i++)
                if (i != x)
                    above = above + p[i * count + b] * e[m + i];
            double ratio = above / below;
            if (ratio > best) {
                best = ratio;
                root = x;
            }
        }
        const int64_t *at = tied + (b * n + root) * n;
        int64_t *c = cell + b * (nodes - 1), *s = side + b * (nodes - 1);
        for (int64_t j = 0; j < m; j++) {
            c[j] = root * m + j;
            s[j] = full ^ (int64_t)((uint64_t)1 << (n + j));
        }
        for (int64_t i = 0; i < n; i++)
            if (i != root)
                s[at[i]] ^= (int64_t)1 << i;
        for (int64_t k = 0; k < n - 1; k++) {
            int64_t leaf = root <= k ? k + 1 : k;
            c[m + k] = leaf * m + at[leaf];
            s[m + k] = (int64_t)1 << leaf;
        }
        heights(n, m, costs + b * n * m, c, s, height + b * nodes);
    }
    return 0;
}

/* What every edge transports, and its rounding error; mass is e^height, and then p H and t q G.  Return whether
 * all masses are finite: otherwise nothing is known of the transports. */
static int transports(int64_t n, int64_t m, int64_t count, const double *p, const double *q, double top,
                      const int64_t *side, double *mass, double *ratio, double *flow, double *error)
{
    int64_t nodes = n + m, heaviest = 0;
    double above = 0.0, below = 0.0;
    for (int64_t i = 0; i < n; i++) {
        mass[i] *= p[i * count];
        above += mass[i];
    }
    for (int64_t j = 0; j < m; j++) {
        mass[n + j] *= q[j * count];
        below += mass[n + j];
    }
    *ratio = above / below;
    for (int64_t v = n; v < nodes; v++)
        mass[v] *= *ratio;
    for (int64_t v = 0; v < nodes; v++) {
        if (!isfinite(mass[v]))
            return 0;
        if (mass[v] > mass[heaviest])
            heaviest = v;
    }
    uint64_t full = all_of(nodes), sources = all_of(n);
    double each = 2.0 * roundings(nodes, top);
    for (int64_t e = 0; e < nodes - 1; e++) {
        int64_t turned = (side[e] >> heaviest) & 1;
        uint64_t light = (uint64_t)side[e] ^ (turned ? full : 0), bits;
        double sent = 0.0;
        for (bits = light & sources; bits; bits &= bits - 1)
            sent += mass[lowest(bits)];
        double inside = sent;
        for (bits = light & ~sources; bits; bits &= bits - 1) {
            double here = mass[lowest(bits)];
            inside += here;
            sent -= here;
        }
        flow[e] = turned ? -sent : sent;
        error[e] = each * inside;
    }
    return 1;
}

/* The edge whose transport falls short most, or -1; mass (n + m) is e^height, and is spoiled. */
static int64_t worst_edge(int64_t n, int64_t m, int64_t count, const double *p, const double *q,
                          const double *costs, const int64_t *cell, const int64_t *side, double *mass)
{
    int64_t edges = n + m - 1, worst = 0;
    double flow[MOST_NODES], error[MOST_NODES], ratio, least = 0.0, top = costs[cell[0]];
    for (int64_t e = 1; e < edges; e++)
        if (costs[cell[e]] > top)
            top = costs[cell[e]];
    if (!transports(n, m, count, p, q, top, side, mass, &ratio, flow, error))
        return -1;
    for (int64_t e = 0; e < edges; e++) {
        double here = flow[e] + error[e];
        if (e == 0 || here < least) {
            least = here;
            worst = e;
        }
    }
    return least < 0.0 ? worst : -1;
}

/* Lower the side of the worst edge until another pair ties: it takes the place of that edge. */
static void pivot(int64_t n, int64_t m, int64_t worst, const double *costs, const double *height,
                  int64_t *cell, int64_t *side)
{
    int64_t nodes = n + m, edges = nodes - 1;
    int64_t full = (int64_t)all_of(nodes);
    int64_t a = side[worst], entering = 0;
    double least = INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if ((a >> i) & 1)
            continue;
        for (int64_t j = 0; j < m; j++) {
            if (!((a >> (n + j)) & 1))
                continue;
            double slack = costs[i * m + j] + height[n + j] - height[i];
            if (slack < least) {
                least = slack;
                entering = i * m + j;
            }
        }
    }
    int64_t old_source = cell[worst] / m, old_sink = cell[worst] % m + n;
    int64_t new_source = entering / m, new_sink = entering % m + n;
    for (int64_t e = 0; e < edges; e++) {
        int64_t within = (a >> (cell[e] / m)) & 1;
        int64_t first = within ? old_source : old_sink, second = within ? new_sink : new_source;
        if (((side[e] >> first) ^ (side[e] >> second)) & 1)
            side[e] ^= within ? full ^ a : a;
    }
    side[worst] = full ^ a;
    cell[worst] = entering;
}

/* One pivot of every tree that is left; return how many are still left, their numbers in which and their
 * heights in the first rows of height; mass is e^height before, and is spoiled. */
int64_t qd_simplex_pivot(int64_t n, int64_t m, int64_t count, int64_t left, int64_t *which, const double *p,
                      const double *q, const double *costs, double *height, double *mass, int64_t *cell,
                      int64_t *side)
{
    int64_t nodes = n + m, edges = nodes - 1, still = 0;
    for (int64_t r = 0; r < left; r++) {
        int64_t b = which[r];
        const double *c = costs + b * n * m;
        int64_t *at = cell + b * edges, *s = side + b * edges;
        int64_t worst = worst_edge(n, m, count, p + b, q + b, c, at, s, mass + r * nodes);
        if (worst < 0)
            continue;
        pivot(n, m, worst, c, height + r * nodes, at, s);
        heights(n, m, c, at, s, height + still * nodes);
        which[still++] = b;
    }
    return still;
}

/* What qd_simplex_proved needs the exponentials of, for any trees, whose cell and side have the problems last:
 * raised (count, 4 n + 3 m - 1) = the heights, the largest ln H that G allows, minus the heights of the
 * sinks, minus the costs of the edges, the largest cost of every source. */
int64_t qd_simplex_raise(int64_t n, int64_t m, int64_t count, const double *d, const int64_t *cell,
                      const int64_t *side, double *raised)
{
    int64_t nodes = n + m, edges = nodes - 1;
    for (int64_t b = 0; b < count; b++) {
        double *height = raised + b * (4 * n + 3 * m - 1), *most = height + nodes, *down = most + n;
        double *cost = down + m, *far = cost + edges, costs[MOST_NODES];
        int64_t numbers[MOST_NODES], s[MOST_NODES];
        for (int64_t e = 0; e < edges; e++) {
            costs[e] = d[cell[e * count + b] * count + b];
            numbers[e] = e;
            s[e] = side[e * count + b];
            cost[e] = -costs[e];
        }
        heights(n, m, costs, numbers, s, height);
        for (int64_t j = 0; j < m; j++)
            down[j] = -height[n + j];
        for (int64_t i = 0; i < n; i++) {
            most[i] = INFINITY;
            far[i] = -INFINITY;
            for (int64_t j = 0; j < m; j++) {
                double here = d[(i * m + j) * count + b], allowed = here + height[n + j];
                if (allowed < most[i])
                    most[i] = allowed;
                if (here > far[i])
                    far[i] = here;
            }
        }
    }
    return 0;
}

/* t plus the price of the demand that the transports leave unmet when no sink exceeds t q. */
static double priced(int64_t n, int64_t m, int64_t count, const double *p, const double *q, double ratio,
                     double off, const int64_t *cell, const double *flow, const double *down,
                     const double *less, const double *far)
{
    int64_t edges = n + m - 1;
    double load[MOST_NODES] = {0.0}, met[MOST_NODES] = {0.0}, sent[MOST_NODES], price = 0.0;
    for (int64_t e = 0; e < edges; e++) {
        int64_t j = cell[e * count] % m;
        sent[e] = (flow[e] > 0.0 ? flow[e] : 0.0) * down[j];
        load[j] += sent[e];
    }
    for (int64_t e = 0; e < edges; e++) {
        int64_t j = cell[e * count] % m;
        double room = ratio * q[j * count], share = load[j] > room ? room / load[j] : 1.0;
        met[cell[e * count] / m] += sent[e] * share * less[e];
    }
    for (int64_t i = 0; i < n; i++) {
        double unmet = p[i * count] * (1.0 + off) - met[i];
        price += ((unmet > 0.0 || unmet != unmet ? unmet : 0.0) + 1e-300) * far[i];
    }
    return (ratio + price) * (1.0 + off);
}

/* What the trees prove of e^T: above, certified, and below; raised as qd_simplex_raise says, exponentiated. */
int64_t qd_simplex_proved(int64_t n, int64_t m, int64_t count, const double *p, const double *q, const double *d,
                       const int64_t *cell, const int64_t *side, double *raised, double *above, double *below)
{
    int64_t nodes = n + m, edges = nodes - 1;
    for (int64_t b = 0; b < count; b++) {
        double *mass = raised + b * (4 * n + 3 * m - 1), *most = mass + nodes, *down = most + n;
        double *less = down + m, *far = less + edges, flow[MOST_NODES], error[MOST_NODES], ratio;
        int64_t s[MOST_NODES];
        double dear = d[cell[b] * count + b], top = d[b], worst = far[0], total = 0.0, sinks = 0.0;
        for (int64_t e = 0; e < edges; e++) {
            double cost = d[cell[e * count + b] * count + b];
            s[e] = side[e * count + b];
            if (cost > dear)
                dear = cost;
        }
        for (int64_t k = 0; k < n * m; k++)
            if (d[k * count + b] > top)
                top = d[k * count + b];
        for (int64_t i = 0; i < n; i++)
            if (far[i] > worst)
                worst = far[i];
        int known = transports(n, m, count, p + b, q + b, dear, s, mass, &ratio, flow, error), doubtful = 0;
        double off = roundings(nodes, top);
        for (int64_t e = 0; known && e < edges; e++)
            doubtful |= flow[e] < error[e];
        above[b] = ratio * (1.0 + off) + (double)n * 1e-300 * worst;
        if (doubtful)
            above[b] = priced(n, m, count, p + b, q + b, ratio, off, cell + b, flow, down, less, far);
        for (int64_t i = 0; i < n; i++)
            total += p[i * count + b] * most[i];
        for (int64_t j = 0; j < m; j++)
            sinks += mass[n + j];
        below[b] = total * ratio / sinks;
    }
    return 0;
}
