/* Which tables the moves of many quilts are sums of: the pieces of every known set, each once.

   The twin is Region.pieces, Region.shared and Region.wanted, in the same order, on names.  Nodes are numbered
   in the order of their names.  Every array is packed behind its own header; see quiltdp/inference/batch.py. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "quilts.h"

enum { MOST_KEPT = 32 };

typedef struct {
    I factor;          /* -1 for hidden nodes summed out */
    I hidden, beside;  /* nearby nodes, as bits: summed out, on its axes */
    I moves, forbids;
    I first, count;    /* its names, targets apart */
    I entries;         /* of its boundary, the target's states included */
} Piece;

typedef struct {
    const I *states, *record, *scope_at, *scope, *near_at, *near, *zeros;
    I nodes, factors;
    Piece *pieces;
    I many, room;
    I *names;
    I used, names_room;
    I *local;          /* of every node: its number among the nearby ones, or -1 */
    I *node_mark, *factor_mark, *seen, *twice, *met;
    I *shared, many_shared;
    I stamp;
    unsigned char *found;
    I *waiting;
    I beside[MOST_NEARBY];
    I *table;          /* open addressing: slots and components by what they are */
    I table_size;
} Work;

static I times(I a, I b) { return b != 0 && a > INT64_MAX / b ? INT64_MAX : a * b; }

static int put_name(Work *w, I node) {
    if (w->used == w->names_room) {
        I *more = realloc(w->names, 2 * w->names_room * sizeof(I));
        if (!more) return 0;
        w->names = more;
        w->names_room *= 2;
    }
    w->names[w->used++] = node;
    return 1;
}

static Piece *begin_piece(Work *w) {
    if (w->many == w->room) {
        Piece *more = realloc(w->pieces, 2 * w->room * sizeof(Piece));
        if (!more) return 0;
        w->pieces = more;
        w->room *= 2;
    }
    Piece *p = w->pieces + w->many++;
    memset(p, 0, sizeof *p);
    p->factor = -1;
    p->first = w->used;
    p->entries = 1;
    return p;
}

/* A node next to a piece: on its axes, unless it is the target. */
static int meet(Work *w, Piece *p, I node, I target) {
    if (w->node_mark[node] == w->stamp) return 1;
    w->node_mark[node] = w->stamp;
    p->entries = times(p->entries, w->states[node]);
    if (node == target) {
        p->moves = 1;
        return 1;
    }
    if (w->local[node] >= 0) p->beside |= (I)1 << w->local[node];
    p->count++;
    return put_name(w, node);
}

static int factor_piece(Work *w, I f, I target) {
    Piece *p = begin_piece(w);
    if (!p) return 0;
    p->factor = f;
    p->forbids = w->zeros[f];
    w->stamp++;
    for (I k = w->scope_at[f]; k < w->scope_at[f + 1]; k++)
        if (!meet(w, p, w->scope[k], target)) return 0;
    return 1;
}

static int component_piece(Work *w, I hidden, const I *nearby, I count, I target) {
    Piece *p = begin_piece(w);
    if (!p) return 0;
    p->hidden = hidden;
    w->stamp++;
    for (I i = 0; i < count; i++)
        if (hidden >> i & 1) w->node_mark[nearby[i]] = w->stamp;
    for (I i = 0; i < count; i++) {
        if (!(hidden >> i & 1)) continue;
        for (I j = w->near_at[nearby[i]]; j < w->near_at[nearby[i] + 1]; j++) {
            I f = w->near[j];
            p->forbids |= w->zeros[f];
            for (I k = w->scope_at[f]; k < w->scope_at[f + 1]; k++)
                if (!meet(w, p, w->scope[k], target)) return 0;
        }
    }
    return 1;
}

static int contains(const Work *w, I f, I node) {
    for (I k = w->scope_at[f]; k < w->scope_at[f + 1]; k++)
        if (w->scope[k] == node) return 1;
    return 0;
}

/* The connected sets of nearby nodes, small ones first, each a component. */
static int components(Work *w, const I *nearby, I count, I target) {
    I waiting = 0;
    for (I i = 0; i < count; i++) {
        I mask = 0;
        for (I j = w->near_at[nearby[i]]; j < w->near_at[nearby[i] + 1]; j++)
            for (I k = w->scope_at[w->near[j]]; k < w->scope_at[w->near[j] + 1]; k++)
                if (w->local[w->scope[k]] >= 0) mask |= (I)1 << w->local[w->scope[k]];
        w->beside[i] = mask;
        w->waiting[waiting++] = (I)1 << i;
        w->found[(I)1 << i] = 1;
    }
    int fine = 1;
    for (I at = 0; at < waiting; at++) {
        I part = w->waiting[at], around = 0;
        for (I i = 0; i < count; i++)
            if (part >> i & 1) around |= w->beside[i];
        around &= ~part;
        for (I i = 0; i < count; i++) {
            I larger = part | (I)1 << i;
            if ((around >> i & 1) && !w->found[larger]) {
                w->found[larger] = 1;
                w->waiting[waiting++] = larger;
            }
        }
    }
    for (I at = 0; at < waiting; at++) {
        w->found[w->waiting[at]] = 0;
        if (fine) fine = component_piece(w, w->waiting[at], nearby, count, target);
    }
    return fine;
}

/* Keep the pieces that move or forbid something, with no latent nearby node on an axis. */
static void choose(Work *w, I latent) {
    I kept = 0;
    for (I i = 0; i < w->many; i++) {
        Piece p = w->pieces[i];
        if ((p.moves || p.forbids) && !(p.beside & latent)) w->pieces[kept++] = p;
    }
    w->many = kept;
}

/* A node that two tables of one known set contain: kept in the order of the names. */
static void share(Work *w, I node, I stamp) {
    if (w->met[node] == stamp || w->local[node] >= 0) return;
    w->met[node] = stamp;
    I k = w->many_shared++;
    for (; k > 0 && w->shared[k - 1] > node; k--) w->shared[k] = w->shared[k - 1];
    w->shared[k] = node;
}

/* Find the nodes that two tables of one known set contain (shared_names), the nearby ones apart. */
static void find_shared(Work *w, I most, const I *walls, I many_walls, const I *wall_at, const I *wall) {
    I stamp = ++w->stamp, any = 0;
    w->many_shared = 0;
    for (I i = 0; i < w->many; i++) {
        const I *name = w->names + w->pieces[i].first;
        for (I k = 0; k < w->pieces[i].count; k++) {
            if (w->seen[name[k]] == stamp) w->twice[name[k]] = stamp, any = 1;
            w->seen[name[k]] = stamp;
        }
    }
    for (I i = 0; any && i < w->many; i++) {
        const Piece *one = w->pieces + i;
        I own = w->many > most ? stamp : ++w->stamp;
        if (w->many > most) {
            for (I k = 0; k < one->count; k++)
                if (w->twice[w->names[one->first + k]] == stamp) share(w, w->names[one->first + k], stamp);
            continue;
        }
        for (I k = 0; k < one->count; k++) w->node_mark[w->names[one->first + k]] = own;
        for (I j = i + 1; j < w->many; j++) {
            const Piece *two = w->pieces + j;
            if ((one->hidden & (two->hidden | two->beside)) || (two->hidden & one->beside)) continue;
            for (I k = 0; k < two->count; k++) {
                I node = w->names[two->first + k];
                if (w->node_mark[node] == own && w->twice[node] == stamp) share(w, node, stamp);
            }
        }
    }
    for (I i = 0; i < many_walls; i++) {
        const I *begin = wall + wall_at[walls[i]], *end = wall + wall_at[walls[i] + 1];
        for (const I *n = begin; n < end; n++)
            if (w->seen[*n] == stamp) share(w, *n, stamp);
        for (const I *n = begin; n < end; n++) w->seen[*n] = stamp;
    }
}

static uint64_t mixed(const I *values, I count, uint64_t h) {
    for (I i = 0; i < count; i++) h = (h ^ (uint64_t)values[i]) * 1099511628211u;
    return h ^ h >> 29;
}

/* The number of these values among rows of one length, put there if they are new; -1 without room. */
static I interned(Work *w, const I *values, I count, I *rows, I length, I *many, I room, I kind) {
    uint64_t h = mixed(values, count, 14695981039346656037u + (uint64_t)kind);
    for (;; h++) {
        I *place = w->table + (h & (uint64_t)(w->table_size - 1));
        if (!*place) {
            if (*many == room) return -1;
            memcpy(rows + *many * length, values, count * sizeof(I));
            *place = 2 * (*many)++ + kind + 1;
            return *many - 1;
        }
        I k = (*place - 1) / 2;
        if ((*place - 1) % 2 == kind && !memcmp(rows + k * length, values, count * sizeof(I))) return k;
    }
}

/* Write the line of one quilt: 1, records, shared nodes, slots (each counted); 0 if numpy must look at it.
   Returns the length, -1 without room, -2 without memory. */
static I plan_one(Work *w, I target, const I *closed, I many_closed, const I *walls, I many_walls,
                  const I *wall_at, const I *wall, const I *limits, I *counts, I *line, I line_room, I *slot,
                  I slot_room, I *comp, I comp_room) {
    I nearby[MOST_NEARBY], count = 0, latent = 0, records = 0, pairs = w->states[target] * (w->states[target] - 1);
    if (line_room < 1) return -1;
    line[0] = 0;
    if (many_closed - 1 > MOST_NEARBY || pairs == 0) return 1;
    for (I i = 0; i < many_closed; i++)
        if (closed[i] != target) nearby[count++] = closed[i];
    I extended = pairs, wide = 1;
    for (I i = 0; i < count; i++) {
        w->local[nearby[i]] = i;
        if (w->record[nearby[i]]) {
            records++;
            extended = times(extended, w->states[nearby[i]] + 1);
        } else
            latent |= (I)1 << i;
    }
    int fine = (I)1 << records <= limits[2], memory = 1;
    w->many = w->used = 0;
    if (fine) {
        I mark = ++w->stamp;
        for (I j = w->near_at[target]; memory && j < w->near_at[target + 1]; j++)
            memory = factor_piece(w, w->near[j], target);
        for (I i = 0; memory && i < count; i++)
            for (I j = w->near_at[nearby[i]]; memory && j < w->near_at[nearby[i] + 1]; j++) {
                I f = w->near[j];
                if (!w->zeros[f] || w->factor_mark[f] == mark || contains(w, f, target)) continue;
                w->factor_mark[f] = mark;
                memory = factor_piece(w, f, target);
            }
        memory = memory && components(w, nearby, count, target);
        choose(w, latent);
        find_shared(w, limits[3], walls, many_walls, wall_at, wall);
        I many_shared = w->many_shared;
        for (I k = 0; k < many_shared; k++) wide = times(wide, w->states[w->shared[k]]);
        fine = times(extended, wide) <= limits[0] && records + many_shared <= MOST_KEPT;
        for (I i = 0; i < w->many; i++) {
            const Piece *p = w->pieces + i;
            if (p->factor < 0 && p->moves && p->entries > limits[1]) fine = 0;
        }
        if (fine && line_room < 4 + records + many_shared + w->many) memory = -1;
        if (fine && memory > 0) {
            I *at = line, *kept;
            *at++ = 1;
            *at++ = records;
            kept = at;
            for (I i = 0; i < count; i++)
                if (w->record[nearby[i]]) *at++ = nearby[i];
            *at++ = many_shared;
            for (I k = 0; k < many_shared; k++) *at++ = w->shared[k];
            *at++ = w->many;
            for (I i = 0; memory > 0 && i < w->many; i++) {
                const Piece *p = w->pieces + i;
                I row[SLOT] = {0}, own[COMPONENT] = {0}, mark = ++w->stamp;
                for (I k = 0; k < p->count; k++) w->node_mark[w->names[p->first + k]] = mark;
                row[0] = p->moves ? target : -1;
                row[1] = p->factor;
                row[2] = -1;
                row[3] = p->moves ? pairs : 1;
                for (I k = 0; k < records; k++)
                    if (w->node_mark[kept[k]] == mark) row[KEPT + row[4]++] = kept[k];
                for (I k = 0; k < many_shared; k++)
                    if (w->node_mark[kept[records + 1 + k]] == mark) row[KEPT + row[4]++] = kept[records + 1 + k];
                for (I k = 0; k < row[4]; k++) row[3] *= w->states[row[KEPT + k]];
                if (p->factor < 0) {
                    for (I k = 0; k < count; k++)
                        if (p->hidden >> k & 1) own[1 + own[0]++] = nearby[k];
                    row[2] = interned(w, own, COMPONENT, comp, COMPONENT, counts + 1, comp_room, 1);
                    if (row[2] < 0) memory = -1;
                }
                *at = memory > 0 ? interned(w, row, SLOT, slot, SLOT, counts, slot_room, 0) : -1;
                if (*at++ < 0) memory = -1;
            }
            if (memory > 0) {
                for (I i = 0; i < count; i++) w->local[nearby[i]] = -1;
                return at - line;
            }
        }
    }
    for (I i = 0; i < count; i++) w->local[nearby[i]] = -1;
    return memory > 0 ? 1 : memory < 0 ? -1 : -2;
}

/* Plan every quilt; returns 0, -1 if there is no room for the answer, -2 without memory.

   net: nodes, factors, then where these begin: states, record, scope_at, scope, near_at, near, zeros.
   asked: quilts, groups, then where these begin: target, group, closed_at, closed (sorted),
          walls_at, walls (of a group), wall_at, wall (their scopes).
   limits: together, entries of a component, known sets, pieces.  counts (out): slots, components. */
I qd_quilt_plan(const I *net, const I *asked, const I *limits, I *counts, I *line_at, I *line, I line_room,
                I *slot, I slot_room, I *comp, I comp_room) {
    const I *target = asked + asked[2], *group = asked + asked[3], *closed_at = asked + asked[4],
            *closed = asked + asked[5], *walls_at = asked + asked[6], *walls = asked + asked[7],
            *wall_at = asked + asked[8], *wall = asked + asked[9];
    Work w = {.states = net + net[2], .record = net + net[3], .scope_at = net + net[4], .scope = net + net[5],
              .near_at = net + net[6], .near = net + net[7], .zeros = net + net[8], .nodes = net[0],
              .factors = net[1], .room = 64, .names_room = 512, .table_size = 64};
    while (w.table_size < 2 * (slot_room + comp_room)) w.table_size *= 2;
    w.pieces = malloc(w.room * sizeof(Piece));
    w.names = malloc(w.names_room * sizeof(I));
    w.table = calloc(w.table_size, sizeof(I));
    w.local = calloc(6 * w.nodes + w.factors + 1, sizeof(I));
    w.waiting = malloc(((I)1 << MOST_NEARBY) * sizeof(I));
    w.found = calloc((I)1 << MOST_NEARBY, 1);
    I result = w.pieces && w.names && w.table && w.local && w.waiting && w.found ? 0 : -2;
    counts[0] = counts[1] = line_at[0] = 0;
    if (!result) {
        w.node_mark = w.local + w.nodes;
        w.seen = w.node_mark + w.nodes;
        w.twice = w.seen + w.nodes;
        w.met = w.twice + w.nodes;
        w.shared = w.met + w.nodes;
        w.factor_mark = w.shared + w.nodes;
        for (I n = 0; n < w.nodes; n++) w.local[n] = -1;
    }
    for (I q = 0; !result && q < asked[0]; q++) {
        I g = group[q], used = line_at[q];
        I length = plan_one(&w, target[q], closed + closed_at[g], closed_at[g + 1] - closed_at[g],
                            walls + walls_at[g], walls_at[g + 1] - walls_at[g], wall_at, wall, limits, counts,
                            line + used, line_room - used, slot, slot_room, comp, comp_room);
        if (length < 0) result = length;
        else line_at[q + 1] = used + length;
    }
    free(w.pieces);
    free(w.names);
    free(w.table);
    free(w.local);
    free(w.waiting);
    free(w.found);
    return result;
}
