/* What a training step on a CPU does between its matrix products, in one pass over memory each.

   Tensors are contiguous, in float32 or bfloat16 (`type` 0 or 1); all arithmetic is float32. NaN and infinity pass
   through as in PyTorch's kernels, for the loop must see them. Each row is computed by one thread, and sums over rows
   are taken block by block and then over the blocks in their order, so results depend neither on the number of threads
   nor on which of them was faster. model/operations.py has the same functions in PyTorch. */

#include "functions.h"

#define WIDEST 16384  /* elements of a row that are held in float32 at once; loader.py knows it */
#define STRETCH 16384 /* elements of a tensor that are computed together; loader.py knows it */

/* The n elements behind `at` as float32: in place, or in `held` when they are bfloat16. */
static inline const float *read_row(const void *data, int type, long at, long n, float *restrict held) {
    if (type == 0) return (const float *)data + at;
    const bf16 *restrict x = (const bf16 *)data + at;
    for (long i = 0; i < n; i++) held[i] = widen(x[i]);
    return held;
}

/* Where to put n elements in float32; `close_row` stores them if that was not yet the place itself. */
static inline float *open_row(void *data, int type, long at, float *held) {
    return type == 0 ? (float *)data + at : held;
}

static inline void close_row(void *data, int type, long at, long n, const float *restrict held) {
    if (type == 0) return;
    bf16 *restrict x = (bf16 *)data + at;
    for (long i = 0; i < n; i++) x[i] = narrow(held[i]);
}

/* ---- sums over rows -------------------------------------------------------------------------------------------- */

#define BLOCK 64 /* rows to a block; loader.py knows it */

static inline long blocks_of(long rows) { return (rows + BLOCK - 1) / BLOCK; }
static inline long end_of(long block, long rows) { return (block + 1) * BLOCK < rows ? (block + 1) * BLOCK : rows; }

/* sums = sum over blocks of parts (blocks, width) */
static void join(const float *parts, float *restrict sums, long rows, long width) {
    memset(sums, 0, width * sizeof(float));
    for (long block = 0; block < blocks_of(rows); block++) {
        const float *part = parts + block * width;
        for (long i = 0; i < width; i++) sums[i] += part[i];
    }
}

static const float ZEROS[WIDEST]; /* in place of a bias that is not there */

#define IN_PARALLEL _Pragma("omp parallel for schedule(static) num_threads(threads) if (threads > 1)")

/* ---- activation, of x + bias, times the gate's other half -------------------------------------------------------- */

/* y = act(x + bias), and in place of x its slope; gated y = act(a) b of the two halves, and slope(a) b and act(a) in
   their places: the way back is a product. x is read before its place is written. */
#define ACTIVATION(NAME)                                                                                               \
    static void NAME##_row(const float *x, const float *restrict bias, float *slopes, float *restrict y, long width,   \
                           int gated) {                                                                                \
        if (gated)                                                                                                     \
            _Pragma("omp simd") for (long i = 0; i < width; i++) {                                                     \
                float slope, other = x[width + i] + bias[width + i], value = NAME(x[i] + bias[i], &slope);             \
                slopes[i] = slope * other;                                                                             \
                slopes[width + i] = value;                                                                             \
                y[i] = value * other;                                                                                  \
            }                                                                                                          \
        else                                                                                                           \
            _Pragma("omp simd") for (long i = 0; i < width; i++) {                                                     \
                float slope;                                                                                           \
                y[i] = NAME(x[i] + bias[i], &slope);                                                                   \
                slopes[i] = slope;                                                                                     \
            }                                                                                                          \
    }

ACTIVATION(gelu)
ACTIVATION(gelu_tanh)
ACTIVATION(silu)
ACTIVATION(relu)

typedef void (*activation_row)(const float *, const float *, float *, float *, long, int);
static const activation_row ROWS[] = {gelu_row, gelu_tanh_row, silu_row, relu_row};

/* x (rows, width or 2 width), overwritten by slopes; y (rows, width) */
void activate(void *x, const float *bias, void *y, long rows, long width, int kind, int gated, int type, int threads) {
    long wide = gated ? 2 * width : width;
    IN_PARALLEL
    for (long row = 0; row < rows; row++) {
        float in[WIDEST], out[WIDEST];
        const float *from = read_row(x, type, row * wide, wide, in);
        float *to = open_row(y, type, row * width, out), *slopes = open_row(x, type, row * wide, in);
        ROWS[kind](from, bias ? bias : ZEROS, slopes, to, width, gated);
        close_row(x, type, row * wide, wide, slopes);
        close_row(y, type, row * width, width, to);
    }
}

/* dx as x; dbias of its width, with parts (blocks, its width), or both null */
void activate_backward(const void *slopes, const void *dy, void *dx, float *dbias, float *parts, long rows, long width,
                       int gated, int type, int threads) {
    long wide = gated ? 2 * width : width;
    IN_PARALLEL
    for (long block = 0; block < blocks_of(rows); block++) {
        float in[WIDEST], grad[WIDEST], out[WIDEST];
        float *restrict part = dbias ? parts + block * wide : 0;
        if (part) memset(part, 0, wide * sizeof(float));
        for (long row = block * BLOCK; row < end_of(block, rows); row++) {
            const float *g = read_row(dy, type, row * width, width, grad);
            const float *slope = read_row(slopes, type, row * wide, wide, in);
            float *to = open_row(dx, type, row * wide, out);
            for (long half = 0; half < wide; half += width) {
                const float *restrict from = slope + half;
                float *restrict place = to + half;
                if (part) {
                    float *restrict sum = part + half;
                    for (long i = 0; i < width; i++) {
                        place[i] = g[i] * from[i];
                        sum[i] += place[i];
                    }
                } else
                    for (long i = 0; i < width; i++) place[i] = g[i] * from[i];
            }
            close_row(dx, type, row * wide, wide, to);
        }
    }
    if (dbias) join(parts, dbias, rows, wide);
}

/* ---- dropout ----------------------------------------------------------------------------------------------------- */

/* A number for each one, every bit of it depending on all bits (`lowbias32` of C. Wellons, 2018) */
static inline uint32_t mix(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352dU;
    x = (x ^ x >> 15) * 0x846ca68bU;
    return x ^ x >> 16;
}

/* The factors of n places: `scale`, or 0 where the number that the key draws for a place, which counts modulo 2^32, is
   below `dropped`. The way back draws them again, so they are not kept. */
static inline void draw(float *restrict factors, long at, long n, int64_t key, int64_t dropped, float scale) {
    uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32), least = (uint32_t)dropped;
    for (long i = 0; i < n; i++)
        factors[i] = mix(mix((uint32_t)(at + i) ^ low) + high) < least ? 0.0f : scale;
}

/* y = x times its factors; the same with gradients is the way back */
void drop(const void *x, void *y, int64_t key, int64_t dropped, float scale, long n, int type, int threads) {
    IN_PARALLEL
    for (long from = 0; from < n; from += STRETCH) {
        long count = from + STRETCH < n ? STRETCH : n - from;
        float in[STRETCH], out[STRETCH], factors[STRETCH];
        const float *restrict values = read_row(x, type, from, count, in);
        float *restrict to = open_row(y, type, from, out);
        draw(factors, from, count, key, dropped, scale);
        for (long i = 0; i < count; i++) to[i] = values[i] * factors[i];
        close_row(y, type, from, count, to);
    }
}

/* ---- layer norm of x, or of z = (x + bias) factors + residual ----------------------------------------------------- */

/* y as z; stats (rows, 2): the mean and one over the deviation. With a residual z is stored, for the way back. There are
   factors of dropout where `dropped` is above 0. */
void add_norm(const void *x, int x_type, const float *bias, int64_t key, int64_t dropped, float scale,
              const void *residual, int residual_type, const float *restrict weight, const float *restrict shift,
              void *z, void *y, int z_type, float *stats, long rows, long width, float eps, int threads) {
    IN_PARALLEL
    for (long row = 0; row < rows; row++) {
        float in[WIDEST], other[WIDEST], sum[WIDEST], out[WIDEST], factors[WIDEST];
        const float *values = read_row(x, x_type, row * width, width, in);
        float mean = 0.0f, square = 0.0f;
        if (residual) {
            const float *a = values, *restrict b = read_row(residual, residual_type, row * width, width, other);
            float *restrict to = open_row(z, z_type, row * width, sum);
            const float *shifts = bias ? bias : ZEROS;
            if (dropped) {
                draw(factors, row * width, width, key, dropped, scale);
                for (long i = 0; i < width; i++) factors[i] *= a[i] + shifts[i];
                a = factors;
                shifts = ZEROS;
            }
            if (z_type) {
                bf16 *restrict kept = (bf16 *)z + row * width;
                for (long i = 0; i < width; i++) {
                    kept[i] = narrow(a[i] + shifts[i] + b[i]);
                    to[i] = widen(kept[i]); /* the norm is of what is kept */
                }
            } else
                for (long i = 0; i < width; i++) to[i] = a[i] + shifts[i] + b[i];
            values = to;
        }
#pragma omp simd reduction(+ : mean)
        for (long i = 0; i < width; i++) mean += values[i];
        mean /= width;
#pragma omp simd reduction(+ : square)
        for (long i = 0; i < width; i++) square += (values[i] - mean) * (values[i] - mean);
        float rate = 1.0f / sqrtf(square / width + eps);
        stats[2 * row] = mean;
        stats[2 * row + 1] = rate;
        float *restrict to = open_row(y, z_type, row * width, out);
        if (shift)
            for (long i = 0; i < width; i++) to[i] = (values[i] - mean) * rate * weight[i] + shift[i];
        else
            for (long i = 0; i < width; i++) to[i] = (values[i] - mean) * rate * weight[i];
        close_row(y, z_type, row * width, width, to);
    }
}

/* dz as z, and dx where x has another type or factors (else it is null); sums (3, width): of weight, shift and bias. */
void add_norm_backward(const void *dy, const void *z, int z_type, const float *stats, const float *restrict weight,
                       int64_t key, int64_t dropped, float scale, void *dz, void *dx, int x_type, float *sums,
                       float *parts, long rows, long width, int threads) {
    IN_PARALLEL
    for (long block = 0; block < blocks_of(rows); block++) {
        float in[WIDEST], grad[WIDEST], out[WIDEST], factors[WIDEST];
        float *restrict dweight = parts + block * 3 * width, *restrict dshift = dweight + width,
              *restrict dbias = dshift + width;
        memset(dweight, 0, 3 * width * sizeof(float));
        for (long row = block * BLOCK; row < end_of(block, rows); row++) {
            const float *restrict from = read_row(z, z_type, row * width, width, in);
            const float *restrict g = read_row(dy, z_type, row * width, width, grad);
            float *to = open_row(dz, z_type, row * width, out);
            float mean = stats[2 * row], rate = stats[2 * row + 1], first = 0.0f, second = 0.0f;
#pragma omp simd reduction(+ : first, second)
            for (long i = 0; i < width; i++) {
                float unit = (from[i] - mean) * rate, step = g[i] * weight[i];
                dweight[i] += g[i] * unit;
                dshift[i] += g[i];
                first += step;
                second += step * unit;
            }
            first /= width;
            second /= width;
            for (long i = 0; i < width; i++)
                to[i] = rate * (g[i] * weight[i] - first - (from[i] - mean) * rate * second);
            close_row(dz, z_type, row * width, width, to);
            if (dropped) {
                draw(factors, row * width, width, key, dropped, scale);
                for (long i = 0; i < width; i++) factors[i] *= to[i];
                to = factors;
            }
            for (long i = 0; i < width; i++) dbias[i] += to[i];
            if (dx && x_type == 0) memcpy((float *)dx + row * width, to, width * sizeof(float));
            if (dx) close_row(dx, x_type, row * width, width, to);
        }
    }
    join(parts, sums, rows, 3 * width);
}

/* ---- queries, keys and values ------------------------------------------------------------------------------------ */

/* (x, y) -> (x cos - y sin, y cos + x sin) for the two halves of a head; back with `turn` -1 */
static inline void rotate(const float *restrict x, float *restrict y, const float *restrict cosine,
                          const float *restrict sine, long half, float turn) {
    for (long i = 0; i < half; i++) y[i] = x[i] * cosine[i] - turn * x[half + i] * sine[i];
    for (long i = 0; i < half; i++) y[half + i] = x[half + i] * cosine[i] + turn * x[i] * sine[i];
}

/* qkv (batch, length, 3, heads, size) + bias -> parts of (3, batch, heads, length, size); cosine and sine,
   half rows `size` apart, rotate the first two, or are null */
void split_heads(const void *qkv, const float *bias, void *out, const float *cosine, const float *sine, long batch,
                 long length, long heads, long size, int type, int threads) {
    long hidden = heads * size, bytes = type ? 2 : 4;
    IN_PARALLEL
    for (long row = 0; row < batch * length; row++) {
        float in[WIDEST], sum[WIDEST], turned[WIDEST];
        long b = row / length, s = row % length;
        const float *from = in;
        if (bias || cosine) from = read_row(qkv, type, row * 3 * hidden, 3 * hidden, in);
        if (bias) {
            for (long i = 0; i < 3 * hidden; i++) sum[i] = from[i] + bias[i];
            from = sum;
        }
        for (long part = 0; part < 3; part++)
            for (long a = 0; a < heads; a++) {
                long to = (((part * batch + b) * heads + a) * length + s) * size;
                const float *x = from + part * hidden + a * size;
                if (cosine && part < 2) {
                    rotate(x, turned, cosine + s * size, sine + s * size, size / 2, 1.0f);
                    x = turned;
                } else if (!bias) { /* copied as it is */
                    long at = row * 3 * hidden + part * hidden + a * size;
                    memcpy((char *)out + to * bytes, (const char *)qkv + at * bytes, size * bytes);
                    continue;
                }
                if (type == 0)
                    memcpy((char *)out + to * bytes, x, size * bytes);
                else
                    close_row(out, type, to, size, x);
            }
    }
}

/* The gradients of the three parts, with their strides over batch, heads and length, -> that of qkv and of bias */
void split_heads_backward(const void *dq, const void *dk, const void *dv, const long *strides, void *dqkv,
                          float *dbias, float *parts, const float *cosine, const float *sine, long batch, long length,
                          long heads, long size, int type, int threads) {
    long hidden = heads * size, rows = batch * length;
    const void *from[3] = {dq, dk, dv};
    IN_PARALLEL
    for (long block = 0; block < blocks_of(rows); block++) {
        float in[WIDEST], out[WIDEST];
        float *restrict sum = dbias ? parts + block * 3 * hidden : 0;
        if (sum) memset(sum, 0, 3 * hidden * sizeof(float));
        for (long row = block * BLOCK; row < end_of(block, rows); row++) {
            long b = row / length, s = row % length;
            float *restrict to = open_row(dqkv, type, row * 3 * hidden, out);
            for (long part = 0; part < 3; part++)
                for (long a = 0; a < heads; a++) {
                    const long *step = strides + 3 * part;
                    const float *x = read_row(from[part], type, b * step[0] + a * step[1] + s * step[2], size, in);
                    float *y = to + part * hidden + a * size;
                    if (cosine && part < 2)
                        rotate(x, y, cosine + s * size, sine + s * size, size / 2, -1.0f);
                    else
                        memcpy(y, x, size * sizeof(float));
                }
            if (sum)
                for (long i = 0; i < 3 * hidden; i++) sum[i] += to[i];
            close_row(dqkv, type, row * 3 * hidden, 3 * hidden, to);
        }
    }
    if (dbias) join(parts, dbias, rows, 3 * hidden);
}

/* ---- softmax and cross-entropy ----------------------------------------------------------------------------------- */

/* scores (batch, heads, length, keys) in place: softmax(scale scores + mask). The mask has strides over the first
   three and is contiguous over keys: kind 0 none, 1 bool (keys to read), 2 float32, 3 bfloat16 */
void softmax(void *scores, const void *mask, const long *strides, int kind, float scale, long batch, long heads,
             long length, long keys, int type, int threads) {
    IN_PARALLEL
    for (long row = 0; row < batch * heads * length; row++) {
        float in[WIDEST], added[WIDEST];
        long at = kind ? row / (heads * length) * strides[0] + row / length % heads * strides[1] +
                             row % length * strides[2] : 0;
        read_row(scores, type, row * keys, keys, in);
        float *restrict x = type ? in : (float *)scores + row * keys;
        if (kind == 1) {
            const uint8_t *restrict real = (const uint8_t *)mask + at;
            for (long i = 0; i < keys; i++) x[i] = real[i] ? scale * x[i] : -3.0e38f;
        } else if (kind) {
            const float *restrict m = read_row(mask, kind - 2, at, keys, added);
            for (long i = 0; i < keys; i++) x[i] = fmaf(scale, x[i], m[i]);
        } else
            for (long i = 0; i < keys; i++) x[i] *= scale;
        float most = -INFINITY, sum = 0.0f;
#pragma omp simd reduction(max : most)
        for (long i = 0; i < keys; i++) most = most > x[i] ? most : x[i];
#pragma omp simd reduction(+ : sum)
        for (long i = 0; i < keys; i++) {
            x[i] = exponential(x[i] - most);
            sum += x[i];
        }
        float rate = 1.0f / sum;
        for (long i = 0; i < keys; i++) x[i] *= rate;
        close_row(scores, type, row * keys, keys, x);
    }
}

/* out = scale weights (grad - sum of weights grad), all (rows, keys) */
void softmax_backward(const void *weights, const void *grad, void *out, float scale, long rows, long keys, int type,
                      int threads) {
    IN_PARALLEL
    for (long row = 0; row < rows; row++) {
        float in[WIDEST], other[WIDEST], held[WIDEST], sum = 0.0f;
        const float *restrict w = read_row(weights, type, row * keys, keys, other);
        const float *restrict g = read_row(grad, type, row * keys, keys, in);
        float *restrict to = open_row(out, type, row * keys, held);
#pragma omp simd reduction(+ : sum)
        for (long i = 0; i < keys; i++) sum += w[i] * g[i];
        for (long i = 0; i < keys; i++) to[i] = scale * w[i] * (g[i] - sum);
        close_row(out, type, row * keys, keys, to);
    }
}

/* Of each row of logits (rows, classes): the loss in nats, log(sum(exp)), and whether the label is the first of the
   highest. A label that is `ignored` has loss 0 and is not right. */
void cross_entropy(const void *logits, const int64_t *labels, float *losses, float *norms, uint8_t *right, long rows,
                   long classes, int64_t ignored, int type, int threads) {
    IN_PARALLEL
    for (long row = 0; row < rows; row++) {
        float held[WIDEST], most = -INFINITY, sum = 0.0f;
        long at = row * classes, label = labels[row];
        for (long from = 0; from < classes; from += WIDEST) {
            long n = classes - from < WIDEST ? classes - from : WIDEST;
            const float *restrict x = read_row(logits, type, at + from, n, held);
#pragma omp simd reduction(max : most)
            for (long i = 0; i < n; i++) most = most > x[i] ? most : x[i];
        }
        for (long from = 0; from < classes; from += WIDEST) {
            long n = classes - from < WIDEST ? classes - from : WIDEST;
            const float *restrict x = read_row(logits, type, at + from, n, held);
#pragma omp simd reduction(+ : sum)
            for (long i = 0; i < n; i++) sum += exponential(x[i] - most);
        }
        norms[row] = most + logf(sum);
        losses[row] = 0.0f;
        right[row] = 0;
        if (label == ignored) continue;
        float one;
        const float *chosen = read_row(logits, type, at + label, 1, &one);
        losses[row] = norms[row] - *chosen;
        right[row] = *chosen == most;
        for (long i = 0; right[row] && i < label; i++) right[row] = *read_row(logits, type, at + i, 1, &one) != most;
    }
}

/* grad = factor of the row (softmax(logits) - one at the label), 0 where it is ignored */
void cross_entropy_backward(const void *logits, const int64_t *labels, const float *norms, const float *factors,
                            void *grad, long rows, long classes, int64_t ignored, int type, int threads) {
    IN_PARALLEL
    for (long row = 0; row < rows; row++) {
        float held[WIDEST], out[WIDEST], norm = norms[row], rate = labels[row] == ignored ? 0.0f : factors[row];
        long at = row * classes;
        for (long from = 0; from < classes; from += WIDEST) {
            long n = classes - from < WIDEST ? classes - from : WIDEST;
            const float *restrict x = read_row(logits, type, at + from, n, held);
            float *restrict to = open_row(grad, type, at + from, out);
            for (long i = 0; i < n; i++) to[i] = rate * exponential(x[i] - norm);
            long label = labels[row] - from;
            if (rate != 0.0f && label >= 0 && label < n) to[label] = rate * (exponential(x[label] - norm) - 1.0f);
            close_row(grad, type, at + from, n, to);
        }
    }
}

/* ---- the step of AdamW, and of LAMB without bias correction ----------------------------------------------------- */

typedef struct {
    float scale, first, second, step, root, eps, decay, rate;
} rates;

/* first, second: 1 - beta1, 1 - beta2. m and v take `scale` times the gradient in;
   update = step m / (root sqrt(v) + eps) + decay w. */
static inline void advance(const float *restrict gradient, float *restrict m, float *restrict v,
                           const float *restrict w, float *restrict update, long n, rates r) {
    for (long i = 0; i < n; i++) update[i] = r.scale * gradient[i];
    for (long i = 0; i < n; i++) {
        float g = update[i];
        m[i] += r.first * (g - m[i]);
        v[i] = (1.0f - r.second) * v[i] + r.second * g * g;
        update[i] = r.step * m[i] / (r.root * sqrtf(v[i]) + r.eps) + r.decay * w[i];
    }
}

/* w = w - rate update at once, or, given room for it, the update is kept, with the squares of w and of it by stretch. */
void moments(const float *gradient, float *m, float *v, float *restrict w, float *restrict update, float *squares,
             long n, float scale, float first, float second, float step, float root, float eps, float decay, float rate,
             int threads) {
    rates r = {scale, first, second, step, root, eps, decay, rate};
    IN_PARALLEL
    for (long from = 0; from < n; from += STRETCH) {
        long count = from + STRETCH < n ? STRETCH : n - from;
        float held[STRETCH], weights = 0.0f, updates = 0.0f;
        float *restrict at = w + from;
        advance(gradient + from, m + from, v + from, at, held, count, r);
        if (!update) {
            for (long i = 0; i < count; i++) at[i] -= rate * held[i];
            continue;
        }
#pragma omp simd reduction(+ : weights, updates)
        for (long i = 0; i < count; i++) {
            weights += at[i] * at[i];
            updates += held[i] * held[i];
            update[from + i] = held[i];
        }
        squares[from / STRETCH * 2] = weights;
        squares[from / STRETCH * 2 + 1] = updates;
    }
}

/* Of a table w (rows, width), whose gradient has rows at `places`, ascending, and zeros elsewhere. The moments of a row
   that never had a gradient are zeros and stay so; neither they nor zeros of a gradient are written. */
void moments_of_rows(const float *gradient, const int64_t *places, long given, float *m, float *v, float *w, long rows,
                     long width, float scale, float first, float second, float step, float root, float eps, float decay,
                     float rate, int threads) {
    rates r = {scale, first, second, step, root, eps, decay, rate};
    /* Frequent words lie together, so threads take blocks in turn. */
    _Pragma("omp parallel for schedule(static, 1) num_threads(threads) if (threads > 1)")
    for (long block = 0; block < blocks_of(rows); block++) {
        float held[WIDEST];
        long next = 0, behind = given;
        while (next < behind) {
            long middle = (next + behind) / 2;
            if (places[middle] < block * BLOCK) next = middle + 1;
            else behind = middle;
        }
        for (long row = block * BLOCK; row < end_of(block, rows); row++) {
            float *restrict at = w + row * width;
            const float *from = ZEROS;
            uint32_t any = 0;
            if (next < given && places[next] == row) {
                from = gradient + next++ * width;
                any = 1;
            } else {
                const uint32_t *a = (const uint32_t *)(m + row * width), *b = (const uint32_t *)(v + row * width);
                for (long i = 0; i < width; i++) any |= a[i] | b[i];
            }
            if (any)
                advance(from, m + row * width, v + row * width, at, held, width, r);
            else
                for (long i = 0; i < width; i++) held[i] = decay * at[i];
            for (long i = 0; i < width; i++) at[i] -= rate * held[i];
        }
    }
}

/* w = w - rate r update, r = |w| / |update| where both are positive, else 1 */
void adapted(float *restrict w, const float *restrict update, const float *squares, long n, float rate, int threads) {
    double weights = 0.0, updates = 0.0;
    for (long stretch = 0; stretch < (n + STRETCH - 1) / STRETCH; stretch++) {
        weights += squares[2 * stretch];
        updates += squares[2 * stretch + 1];
    }
    if (weights > 0.0 && updates > 0.0) rate *= (float)sqrt(weights / updates);
    IN_PARALLEL
    for (long from = 0; from < n; from += STRETCH)
        for (long i = from; i < (from + STRETCH < n ? from + STRETCH : n); i++) w[i] -= rate * update[i];
}
