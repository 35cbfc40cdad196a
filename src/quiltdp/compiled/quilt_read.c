/* b and the swings of many quilts, read off their moves; and the moves of tiny models, read off their joint.

   The twins are _Reader.read (quiltdp/inference/quilts.py) and JointQuilts (quiltdp/inference/joint.py).  No
   logarithm is taken here: ratios and masses come back as they are.  See quilt_plan.c for the packed arrays. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "quilts.h"

/* A double no less than the true value, for a value of at least 0. */
static double above(double value, double error) {
    if (error == 0) return value;
    double sum = value + error;
    if (!(sum < INFINITY)) return sum;
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    bits++;
    memcpy(&sum, &bits, sizeof bits);
    return sum;
}

/* A largest entry as a number; NaN stays, for the caller to refuse. */
static double told(double best) { return best >= BIG / 2 ? INFINITY : best <= 0.0 ? 0.0 : best; }

/* For every entry of the extended axes of a quilt: which records are not known there, and its place in the
   extended ln P(x, l), whose axes are target and records in the order of their names. */
static I entries_of(const I *states, const I *nodes, I many, I target, I *known, I *place, I *target_step) {
    I length[MOST_NEARBY], step[MOST_NEARBY], records = 0, at = 1, entries = 1;
    for (I k = many - 1; k >= 0; k--) { /* the last record first */
        if (nodes[k] == target) *target_step = at;
        else {
            length[records] = states[nodes[k]] + 1;
            step[records] = at;
            entries *= length[records++];
        }
        at *= states[nodes[k]] + 1;
    }
    I index[MOST_NEARBY] = {0}, here = 0, code = 0;
    for (I k = 0; k < records; k++)
        if (length[k] == 1) code |= (I)1 << k;
    for (I e = 0; e < entries; e++) {
        known[e] = code;
        place[e] = here;
        for (I k = 0; k < records; k++) {
            here += step[k];
            if (++index[k] < length[k]) {
                if (index[k] == length[k] - 1) code |= (I)1 << k;
                break;
            }
            here -= step[k] * length[k];
            index[k] = 0;
            if (length[k] > 1) code &= ~((I)1 << k);
        }
    }
    return entries;
}

/* One quilt: b, swing, its upper bound, then that by the number of known records, then for every known set. */
static void read_one(const I *states, const I *nodes, I axes, I target, const double *moves, const double *logs,
                     double error, I *known, I *place, double *out, I *at) {
    I many = axes - 1, sets = (I)1 << many, count = states[target], half = count * (count - 1) / 2, step = 1;
    I entries = entries_of(states, nodes, axes, target, known, place, &step);
    double *by_size = out + 3, *upper = by_size + many + 1;
    for (I s = 0; s < sets; s++) upper[s] = -INFINITY;
    for (I p = 0; p < half; p++) {
        const double *there = moves + p * entries, *back = there + half * entries;
        for (I e = 0; e < entries; e++) {
            double both = there[e] + back[e];
            double *most = upper + known[e];
            if (!(both <= *most) && *most == *most) *most = both;
        }
    }
    double swing = -1.0, worst = -1.0;
    for (I k = 0; k <= many; k++) by_size[k] = -1.0;
    for (I s = 0; s < sets; s++) {
        double value = told(upper[s]);
        if (value > swing) swing = value, at[0] = s;
        upper[s] = above(value, 2 * error);
        if (upper[s] > worst) worst = upper[s];
        I size = many;
        for (I rest = s; rest; rest &= rest - 1) size--;
        if (upper[s] > by_size[size]) by_size[size] = upper[s];
    }
    double best = -INFINITY;
    at[1] = -1;
    if (logs) {
        at[1] = 0;
        const double *move = moves;
        for (int reversed = 0; reversed < 2; reversed++)
            for (I x = 0; x < count; x++)
                for (I y = x + 1; y < count; y++, move += entries) {
                    const double *a = logs + step * (reversed ? y : x), *b = logs + step * (reversed ? x : y);
                    for (I e = 0; e < entries; e++) {
                        double odds = a[place[e]] - b[place[e]];
                        if (!isfinite(odds)) continue;
                        double ratio = move[e] - odds;
                        if (ratio > best) best = ratio, at[1] = move - moves + e;
                    }
                }
    }
    double b = logs ? told(best) : INFINITY;
    out[0] = b < swing ? b : swing;
    out[1] = swing;
    out[2] = worst;
}

/* Read off every quilt that has moves; returns 0, or -2 without memory.

   moves_at (-1: none), logs_at (-1: no marginal), out_at: where those of a quilt begin; at: two numbers a quilt,
   the known set of the swing and the place of b in the moves. */
I qd_quilt_read(const I *net, const I *asked, const double *moves, const I *moves_at, const double *logs,
                const I *logs_at, const double *errors, I most_entries, const I *out_at, double *out, I *at) {
    const I *target = asked + asked[2], *group = asked + asked[3], *nodes_at = asked + asked[10],
            *nodes = asked + asked[11];
    I *known = malloc(2 * most_entries * sizeof(I));
    if (!known) return -2;
    for (I q = 0; q < asked[0]; q++) {
        const I *own = nodes_at + group[q];
        if (moves_at[q] >= 0)
            read_one(net + net[2], nodes + own[0], own[1] - own[0], target[q], moves + moves_at[q],
                     logs_at[q] < 0 ? 0 : logs + logs_at[q], errors[q], known, known + most_entries,
                     out + out_at[q], at + 2 * q);
    }
    free(known);
    return 0;
}

/* Give an axis its last entry, the sum of the others in their order: outer blocks of length + 1 runs. */
static void extend(double *table, I outer, I length, I inner) {
    for (I o = 0; o < outer; o++, table += (length + 1) * inner) {
        double *total = table + length * inner;
        memcpy(total, table, inner * sizeof(double));
        for (I k = 1; k < length; k++)
            for (I j = 0; j < inner; j++) total[j] += table[k * inner + j];
    }
}

/* Give every axis of many laws its last entry; length(_at): their axes, law_at and out_at: where they are. */
I qd_extend_laws(I laws, const I *length_at, const I *length, const I *law_at, const double *law, const I *out_at,
                 double *out) {
    for (I t = 0; t < laws; t++) {
        const I *own = length + length_at[t];
        I axes = length_at[t + 1] - length_at[t], size = 1, before = 1, inner = axes ? own[axes - 1] : 1;
        const double *from = law + law_at[t], *end = law + law_at[t + 1];
        double *to = out + out_at[t];
        I index[MOST_AXES] = {0}, step[MOST_AXES];
        for (I a = axes - 1; a >= 0; a--) {
            step[a] = size;
            size *= own[a] + 1;
        }
        while (from < end) {
            memcpy(to, from, inner * sizeof(double));
            from += inner;
            for (I a = axes - 2; a >= 0; a--) {
                to += step[a];
                if (++index[a] < own[a]) break;
                to -= step[a] * own[a];
                index[a] = 0;
            }
        }
        for (I a = 0; a < axes; a++) {
            extend(out + out_at[t], before, own[a], size / before / (own[a] + 1));
            before *= own[a] + 1;
        }
    }
    return 0;
}

/* Sum the joint into a table with extended axes (their steps) and a last axis of width entries. */
static void sum_joint(const double *law, I nodes, const I *length, const I *step, double *to) {
    I index[MOST_AXES] = {0}, last = nodes - 1;
    for (;;) {
        for (I k = 0; k < length[last]; k++) to[k * step[last]] += *law++;
        if (!next_place(index, last, length, step, &to)) return;
    }
}

/* The largest P(x, l, q) / P(y, l, q) over q, for all ordered pairs and every l; 0/0 is left out. */
static void ratios(const double *table, I outer, I states, I inner, I width, double *out) {
    for (int reversed = 0; reversed < 2; reversed++)
        for (I x = 0; x < states; x++)
            for (I y = x + 1; y < states; y++)
                for (I o = 0; o < outer; o++) {
                    const double *block = table + o * (states + 1) * inner * width;
                    const double *a = block + (reversed ? y : x) * inner * width;
                    const double *b = block + (reversed ? x : y) * inner * width;
                    for (I j = 0; j < inner; j++, a += width, b += width) {
                        double best = 0.0;
                        for (I q = 0; q < width; q++) {
                            double ratio = a[q] / b[q];
                            best = ratio > best ? ratio : best;
                        }
                        *out++ = best;
                    }
                }
}

/* Read the quilts off the joint; returns 0, or -2 without memory.

   axis: where a node is in the joint, whose lengths are given; room: entries of the largest P(x_C, x_Q);
   masses_at (-1: left out): where P(x_C) of a group goes; ratio_at: where the ratios of a quilt go. */
I qd_joint_quilts(const I *net, const I *asked, const double *law, const I *axis, const I *length, I room,
                  const I *masses_at, double *masses, const I *ratio_at, double *ratio) {
    const I *states = net + net[2], *target = asked + asked[2], *group = asked + asked[3],
            *nodes_at = asked + asked[10], *nodes = asked + asked[11], *separator_at = asked + asked[12],
            *separators = asked + asked[13];
    I all = net[0], quilts = asked[0], groups = asked[1], step[MOST_AXES];
    double *table = malloc(room * sizeof(double));
    I *next = malloc((groups + quilts) * sizeof(I)), *first = next + quilts;
    for (I g = 0; table && next && g < groups; g++) first[g] = -1;
    for (I q = quilts - 1; table && next && q >= 0; q--) {
        next[q] = first[group[q]];
        first[group[q]] = q;
    }
    for (I g = 0; table && next && g < groups; g++) {
        const I *own = nodes + nodes_at[g], *separator = separators + separator_at[g];
        I axes = nodes_at[g + 1] - nodes_at[g], many = separator_at[g + 1] - separator_at[g];
        I width = 1, entries = 1;
        if (masses_at[g] < 0 || first[g] < 0) continue;
        memset(step, 0, all * sizeof(I));
        for (int whole = 0; whole < 2; whole++) { /* the law of the closed set, then with its separator */
            for (I k = 0; whole && k < many; k++) {
                step[axis[separator[k]]] = width;
                width *= states[separator[k]];
            }
            double *to = whole ? table : masses + masses_at[g];
            I size = width, before = 1;
            for (I k = axes - 1; k >= 0; k--) {
                step[axis[own[k]]] = size;
                size *= states[own[k]] + 1;
            }
            memset(to, 0, size * sizeof(double));
            sum_joint(law, all, length, step, to);
            for (I k = 0; k < axes; k++) {
                I blocks = before * (states[own[k]] + 1);
                extend(to, before, states[own[k]], size / blocks);
                before = blocks;
            }
            entries = before;
        }
        for (I q = first[g]; q >= 0; q = next[q]) {
            I before = 1, count = states[target[q]];
            for (I k = 0; own[k] != target[q]; k++) before *= states[own[k]] + 1;
            ratios(table, before, count, entries / before / (count + 1), width, ratio + ratio_at[q]);
        }
    }
    int fine = table && next;
    free(table);
    free(next);
    return fine ? 0 : -2;
}
