/* The moves of the pieces of many quilts, and their sums, the separator maximised.

   The twins are moved_all (quiltdp/inference/moves.py) and Region.together: the same differences and maxima,
   and the same additions in the same order.  See quilt_plan.c for the packed arrays. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "quilts.h"

/* Copy a table so that its axes lie at the given steps; returns whether an entry is minus infinity. */
static int laid(const double *from, I axes, const I *length, const I *step, double *to) {
    I index[MOST_AXES] = {0}, last = axes - 1, zeros = 0;
    if (axes == 0) {
        to[0] = from[0];
        return from[0] == -INFINITY;
    }
    I run = length[last], one = step[last];
    for (;;) {
        for (I k = 0, j = 0; k < run; k++, j += one) {
            double value = *from++;
            zeros |= value == -INFINITY;
            to[j] = value;
        }
        if (!next_place(index, last, length, step, &to)) return (int)zeros;
    }
}

/* The largest and the smallest difference of two rows. */
static void extremes(const double *x, const double *y, I count, double *most, double *least) {
    double a = x[0] - y[0], b = a, up = a, down = a;
    I k = 1;
    for (; k + 1 < count; k += 2) {
        double c = x[k] - y[k], d = x[k + 1] - y[k + 1];
        a = c > a ? c : a;
        b = d > b ? d : b;
        up = c < up ? c : up;
        down = d < down ? d : down;
    }
    if (k < count) {
        double c = x[k] - y[k];
        a = c > a ? c : a;
        up = c < up ? c : up;
    }
    *most = a > b ? a : b;
    *least = up < down ? up : down;
}

static double largest(const double *x, const double *floored, I count) {
    double a = x[0] - floored[0], b = a;
    I k = 1;
    for (; k + 1 < count; k += 2) {
        double c = x[k] - floored[k], d = x[k + 1] - floored[k + 1];
        a = c > a ? c : a;
        b = d > b ? d : b;
    }
    if (k < count) {
        double c = x[k] - floored[k];
        a = c > a ? c : a;
    }
    a = a > b ? a : b;
    return a < BIG ? a : BIG;
}

/* All ordered pairs of states, x < y first, then the same the other way round. */
static void pair_moves(const double *table, double *floored, I states, I stay, I gone, int zeros, double *out) {
    I row = stay * gone, half = states * (states - 1) / 2 * stay;
    if (zeros)
        for (I k = 0; k < states * row; k++) floored[k] = table[k] > -BIG ? table[k] : -BIG;
    for (I x = 0; x < states; x++)
        for (I y = x + 1; y < states; y++, out += stay) {
            const double *a = table + x * row, *b = table + y * row;
            const double *c = floored + x * row, *d = floored + y * row;
            if (zeros)
                for (I s = 0; s < stay; s++) {
                    out[s] = largest(a + s * gone, d + s * gone, gone);
                    out[half + s] = largest(b + s * gone, c + s * gone, gone);
                }
            else if (gone == 1)
                for (I s = 0; s < stay; s++) {
                    double ratio = a[s] - b[s];
                    out[s] = ratio;
                    out[half + s] = -ratio;
                }
            else
                for (I s = 0; s < stay; s++) {
                    double most, least;
                    extremes(a + s * gone, b + s * gone, gone, &most, &least);
                    out[s] = most;
                    out[half + s] = -least;
                }
        }
}

/* A barrier over kept nodes: 0 where some value of what goes is possible. */
static void wall_of(const double *table, I stay, I gone, double *out) {
    for (I s = 0; s < stay; s++) {
        double best = -INFINITY;
        for (I g = 0; g < gone; g++)
            if (table[s * gone + g] > -INFINITY) best = 0.0;
        out[s] = best;
    }
}

/* Lay a table out as target (if any), kept nodes in their order, what goes; its sizes are returned. */
static int lay_out(const double *from, const I *scope, I axes, const I *states, I target, const I *kept, I many,
                   double *to, I *own, I *stay, I *gone) {
    I length[MOST_AXES], step[MOST_AXES], rest = 1;
    *own = *stay = 1;
    for (I a = 0; a < axes; a++) {
        length[a] = states[scope[a]];
        step[a] = -1;
    }
    for (I a = axes - 1; a >= 0; a--) {
        I is_kept = scope[a] == target;
        for (I k = 0; k < many; k++) is_kept |= scope[a] == kept[k];
        if (is_kept) continue;
        step[a] = rest;
        rest *= length[a];
    }
    *gone = rest;
    for (I k = many - 1; k >= 0; k--)
        for (I a = 0; a < axes; a++)
            if (scope[a] == kept[k]) {
                step[a] = rest;
                rest *= length[a];
                *stay *= length[a];
            }
    for (I a = 0; a < axes; a++)
        if (scope[a] == target) {
            step[a] = rest;
            *own = length[a];
        }
    I runs = 0; /* axes that follow each other on both sides are one */
    for (I a = 0; a < axes; a++) {
        if (runs && step[runs - 1] == step[a] * length[a]) {
            length[runs - 1] *= length[a];
            step[runs - 1] = step[a];
        } else {
            length[runs] = length[a];
            step[runs++] = step[a];
        }
    }
    return laid(from, runs, length, step, to);
}

/* Make the table of every slot; returns 0, or -2 without memory.

   source: the addresses of the tables of the factors, then of the components; comp_scope(_at): their axes;
   ready: the address of a slot's own table where it has been made, or 0. */
I qd_quilt_moves(const I *net, I slots, const I *slot, const I *source, const I *comp_scope_at,
                 const I *comp_scope, const I *ready, const I *slot_at, I largest_source, double *out) {
    const I *states = net + net[2], *scope_at = net + net[4], *scope = net + net[5];
    double *room = malloc(2 * largest_source * sizeof(double));
    if (!room) return -2;
    for (I s = 0; s < slots; s++) {
        const I *row = slot + s * SLOT;
        double *to = out + slot_at[s];
        if (ready[s]) {
            memcpy(to, (const double *)(intptr_t)ready[s], row[3] * sizeof(double));
            continue;
        }
        I f = row[1], c = row[2], own, stay, gone;
        const I *begin = f >= 0 ? scope + scope_at[f] : comp_scope + comp_scope_at[c];
        I axes = f >= 0 ? scope_at[f + 1] - scope_at[f] : comp_scope_at[c + 1] - comp_scope_at[c];
        const double *from = (const double *)(intptr_t)source[f >= 0 ? f : net[1] + c];
        int zeros = lay_out(from, begin, axes, states, row[0], row + KEPT, row[4], room, &own, &stay, &gone);
        if (row[0] < 0) wall_of(room, stay, gone, to);
        else pair_moves(room, room + largest_source, own, stay, gone, zeros, to);
    }
    free(room);
    return 0;
}

typedef struct { I axes, length[MOST_AXES], to[MOST_AXES], from[MOST_AXES]; } Box;

static void add_axis(Box *box, I length, I to, I from) {
    if (length == 1) return;
    I a = box->axes - 1;
    if (a >= 0 && box->to[a] == to * length && box->from[a] == from * length) { /* one run with the axis before */
        box->length[a] *= length;
        box->to[a] = to;
        box->from[a] = from;
        return;
    }
    box->length[box->axes] = length;
    box->to[box->axes] = to;
    box->from[box->axes++] = from;
}

/* Add a table to a box of an array; an axis that a table lacks has step 0. */
static void add_box(const Box *box, double *to, const double *from) {
    I index[MOST_AXES] = {0}, last = box->axes - 1;
    if (last < 0) {
        *to += *from;
        return;
    }
    I length = box->length[last], t = box->to[last], f = box->from[last];
    for (;;) {
        if (t == 1 && f == 1)
            for (I k = 0; k < length; k++) to[k] += from[k];
        else if (f == 0)
            for (I k = 0; k < length; k++) to[k * t] += *from;
        else
            for (I k = 0; k < length; k++) to[k * t] += from[k * f];
        I a = last - 1;
        for (; a >= 0; a--) {
            to += box->to[a];
            from += box->from[a];
            if (++index[a] < box->length[a]) break;
            to -= box->to[a] * box->length[a];
            from -= box->from[a] * box->length[a];
            index[a] = 0;
        }
        if (a < 0) return;
    }
}

/* The step of a node in a slot's table, 0 if it is not on its axes. */
static I step_of(const I *row, const I *states, I node) {
    I step = 1;
    for (I k = row[4] - 1; k >= 0; k--) {
        if (row[KEPT + k] == node) return step;
        step *= states[row[KEPT + k]];
    }
    return 0;
}

static int holds(const I *list, I count, I node) {
    for (I k = 0; k < count; k++)
        if (list[k] == node) return 1;
    return 0;
}

/* Sum up one quilt: alone over (pairs, shared), then whole over (pairs, extended records, shared). */
static void sum_up(const I *net, const I *line, I target, const I *slot, const I *comp, const double *moves,
                   const I *slot_at, const I *walls, I many_walls, const I *wall_at, const I *wall,
                   const I *wall_source, const double *source, double *alone, double *whole, double *spare,
                   double *out) {
    const I *states = net + net[2], *records = line + 2, *shared = line + 3 + line[1];
    I many_records = line[1], many_shared = line[2 + many_records];
    const I *own = shared + many_shared + 1;
    I pairs = states[target] * (states[target] - 1), wide = 1, extended = 1, pieces = own[-1];
    for (I k = 0; k < many_shared; k++) wide *= states[shared[k]];
    for (I k = 0; k < many_records; k++) extended *= states[records[k]] + 1;
    memset(alone, 0, pairs * wide * sizeof(double));
    for (int moving = 0; moving < 2; moving++) {
        if (moving) { /* what every known set has, then what only some have */
            double *to = whole;
            for (I p = 0; p < pairs; p++)
                for (I e = 0; e < extended; e++, to += wide) memcpy(to, alone + p * wide, wide * sizeof(double));
        }
        for (I i = 0; i < pieces; i++) {
            const I *row = slot + own[i] * SLOT, *hidden = row[2] >= 0 ? comp + row[2] * COMPONENT : 0;
            int some = hidden && many_records;
            for (I k = 0; k < many_records && !some; k++) some = holds(row + KEPT, row[4], records[k]);
            if (some != moving) continue;
            Box box = {0};
            I begin = 0, step = extended * wide;
            add_axis(&box, pairs, moving ? step : wide, row[0] < 0 ? 0 : row[3] / pairs);
            for (I k = 0; moving && k < many_records; k++) {
                I count = states[records[k]];
                step /= count + 1;
                if (hidden && holds(hidden + 1, hidden[0], records[k])) begin += count * step;
                else if (holds(row + KEPT, row[4], records[k]))
                    add_axis(&box, count, step, step_of(row, states, records[k]));
                else add_axis(&box, count + 1, step, 0);
            }
            step = wide;
            for (I k = 0; k < many_shared; k++) {
                step /= states[shared[k]];
                add_axis(&box, states[shared[k]], step, step_of(row, states, shared[k]));
            }
            add_box(&box, (moving ? whole : alone) + begin, moves + slot_at[own[i]]);
        }
        for (I i = 0; !moving && i < many_walls; i++) {
            const I *scope = wall + wall_at[walls[i]];
            I axes = wall_at[walls[i] + 1] - wall_at[walls[i]], first, stay, gone, row[SLOT] = {0};
            for (I k = 0; k < many_shared; k++)
                if (holds(scope, axes, shared[k])) row[KEPT + row[4]++] = shared[k];
            lay_out(source + wall_source[walls[i]], scope, axes, states, -1, row + KEPT, row[4], spare, &first,
                    &stay, &gone);
            wall_of(spare, stay, gone, spare);
            Box box = {0};
            I step = wide;
            add_axis(&box, pairs, wide, 0);
            for (I k = 0; k < many_shared; k++) {
                step /= states[shared[k]];
                add_axis(&box, states[shared[k]], step, step_of(row, states, shared[k]));
            }
            add_box(&box, alone, spare);
        }
    }
    for (I k = 0; k < pairs * extended; k++) {
        const double *from = whole + k * wide;
        double best = from[0];
        for (I j = 1; j < wide; j++) best = from[j] > best ? from[j] : best;
        out[k] = best;
    }
}

/* The error of the moves of one quilt, from the sizes and errors of its tables. */
static double error_of(const I *net, const I *line, const I *slot, const double *sizes, const double *errors,
                       double eps) {
    const I *own = line + 4 + line[1] + line[2 + line[1]];
    double size = 0.0, error = 0.0;
    for (I i = 0; i < own[-1]; i++) {
        const I *row = slot + own[i] * SLOT;
        I k = row[1] >= 0 ? row[1] : net[1] + row[2];
        if (row[0] < 0) continue; /* what only forbids is exact */
        size += 2 * sizes[k];
        error += 2 * errors[k] + 2 * sizes[k] * eps;
    }
    return error + (double)(own[-1] + 1) * eps * size;
}

/* The moves of every quilt that has a plan, at its place (-1: none), and their errors; -2 without memory. */
I qd_quilt_sums(const I *net, const I *asked, const I *line_at, const I *line, const I *slot, const I *comp,
                const double *moves, const I *slot_at, const I *wall_source, const double *walls_of, I largest_wall,
                const double *sizes, const double *errors, double eps, const I *out_at, double *out,
                double *error) {
    const I *states = net + net[2], *target = asked + asked[2], *group = asked + asked[3],
            *walls_at = asked + asked[6], *walls = asked + asked[7], *wall_at = asked + asked[8],
            *wall = asked + asked[9];
    I most = 1;
    for (I q = 0; q < asked[0]; q++) {
        if (out_at[q] < 0) continue;
        const I *own = line + line_at[q];
        I entries = states[target[q]] * (states[target[q]] - 1);
        for (I k = 0; k < own[1]; k++) entries *= states[own[2 + k]] + 1;
        for (I k = 0; k < own[2 + own[1]]; k++) entries *= states[own[3 + own[1] + k]];
        most = entries > most ? entries : most;
    }
    double *room = malloc((2 * most + largest_wall) * sizeof(double));
    if (!room) return -2;
    for (I q = 0; q < asked[0]; q++) {
        I g = group[q];
        if (out_at[q] < 0) continue;
        sum_up(net, line + line_at[q], target[q], slot, comp, moves, slot_at, walls + walls_at[g],
               walls_at[g + 1] - walls_at[g], wall_at, wall, wall_source, walls_of, room, room + most,
               room + 2 * most, out + out_at[q]);
        error[q] = error_of(net, line + line_at[q], slot, sizes, errors, eps);
    }
    free(room);
    return 0;
}
