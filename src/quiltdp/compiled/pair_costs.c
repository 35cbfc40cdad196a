/* What pairs of states cost in one step of sequential coupling (quiltdp.accountant.leakage.pair_costs, which
 * has the twin in numpy): every table beyond is read and added in its order, then the price of the step. */
#include <math.h>
#include <stdint.h>

/* The step has slots values in each of count states before it; rows of them, from start on, are paired with
 * all.  tables: one after the other, table k from offsets[k] on, sizes[k] square; columns (parts, slots, count):
 * its row for every slot.  own: prices square, value (slots, count): its row.  Each sum is rounded up by factor.
 * Written to d (slots * slots, wide), from column at on: one column for every pair. */
int64_t qd_pair_costs(int64_t slots, int64_t count, int64_t start, int64_t rows, int64_t parts,
                      const double *tables, const int64_t *offsets, const int64_t *sizes,
                      const int64_t *columns, const double *own, int64_t prices, const int64_t *value,
                      double factor, double *d, int64_t wide, int64_t at)
{
    int64_t all = slots * count;
    for (int64_t i = 0; i < slots; i++)
        for (int64_t j = 0; j < slots; j++)
            for (int64_t r = 0; r < rows; r++) {
                int64_t place = i * count + start + r, k = 0;
                double *out = d + (i * slots + j) * wide + at + r * count;
                for (int64_t c = 0; c < count; c++)
                    out[c] = 0.0;
                for (; k + 1 < parts; k += 2) {
                    const int64_t *one = columns + k * all, *two = one + all;
                    const double *first = tables + offsets[k] + one[place] * sizes[k];
                    const double *second = tables + offsets[k + 1] + two[place] * sizes[k + 1];
                    one += j * count;
                    two += j * count;
                    for (int64_t c = 0; c < count; c++)
                        out[c] = out[c] + first[one[c]] + second[two[c]];
                }
                if (k < parts) {
                    const int64_t *one = columns + k * all;
                    const double *first = tables + offsets[k] + one[place] * sizes[k];
                    one += j * count;
                    for (int64_t c = 0; c < count; c++)
                        out[c] += first[one[c]];
                }
                const double *price = own + value[place] * prices;
                const int64_t *to = value + j * count;
                for (int64_t c = 0; c < count; c++) {
                    double total = out[c] + price[to[c]];
                    out[c] = total + fabs(total) * factor;
                }
            }
    return 0;
}
