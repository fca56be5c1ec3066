/* What a training step on a CPU does between its matrix products, in one pass over memory each; and, in a
   section of its own, a layer of a network that answers without padding, its products included (model/cpu/packed.py).

   Tensors are contiguous, in float32 or bfloat16 (`type` 0 or 1); all arithmetic is float32. NaN and infinity pass
   through as in PyTorch's kernels, for the loop must see them. Each row is computed by one thread, and sums over rows
   are taken block by block and then over the blocks in their order, so results depend neither on the number of threads
   nor on which of them was faster. model/operations.py has the same functions in PyTorch. */

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define WIDEST 16384 /* elements of a row that are held in float32 at once; compiled.py knows it */

typedef uint16_t bf16;

static inline float widen(bf16 x) {
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline bf16 narrow(float x) { /* to the nearest, ties to even */
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (bf16)(x != x ? 0x7fc0 : rounded);
}

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

/* ---- functions ------------------------------------------------------------------------------------------------- */

static inline float exponential(float value) { /* 2 ulp; 0 below -87, infinity above 88 */
    float x = value > 88.0f ? 88.0f : value;
    x = x < -87.0f ? -87.0f : x;
    float n = rintf(x * 1.44269504089f);
    float r = fmaf(n, -0.693359375f, x);
    r = fmaf(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = fmaf(p, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    p = fmaf(p, r * r, r) + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, 4);
    float power = p * scale;
    power = value < -87.0f ? 0.0f : power;
    return value > 88.0f ? INFINITY : power;
}

static inline float logistic(float x) { return 1.0f / (1.0f + exponential(-x)); }

/* The standard normal distribution function (Abramowitz and Stegun 7.1.26, error 8e-8) and its density. */
static inline float normal(float x, float *density) {
    float size = fabsf(x), e = exponential(-0.5f * x * x), t = 1.0f / fmaf(0.23164189f, size, 1.0f);
    float p = 1.061405429f;
    p = fmaf(p, t, -1.453152027f);
    p = fmaf(p, t, 1.421413741f);
    p = fmaf(p, t, -0.284496736f);
    p = fmaf(p, t, 0.254829592f);
    float tail = 0.5f * p * t * e;
    *density = 0.3989422804f * e;
    return x < 0.0f ? tail : 1.0f - tail;
}

static inline float gelu(float x, float *slope) {
    float density, share = normal(x, &density);
    *slope = fmaf(x, density, share);
    return x * share;
}

/* x (1 + tanh u) / 2 = x logistic(2u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
static inline float gelu_tanh(float x, float *slope) {
    float square = x * x, s = logistic(1.5957691216f * x * fmaf(0.044715f, square, 1.0f));
    *slope = s + x * s * (1.0f - s) * 1.5957691216f * fmaf(0.134145f, square, 1.0f);
    return x * s;
}

static inline float silu(float x, float *slope) {
    float s = logistic(x);
    *slope = s + x * s * (1.0f - s);
    return x * s;
}

static inline float relu(float x, float *slope) {
    *slope = x <= 0.0f ? 0.0f : 1.0f;
    return x < 0.0f ? 0.0f : x;
}

/* ---- sums over rows -------------------------------------------------------------------------------------------- */

#define BLOCK 64 /* rows to a block; compiled.py knows it */

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

/* ---- layer norm of x, or of z = x + bias + residual --------------------------------------------------------------- */

/* y as z; stats (rows, 2): the mean and one over the deviation. With a residual z is stored, for the way back. */
void add_norm(const void *x, int x_type, const float *bias, const void *residual, int residual_type,
              const float *restrict weight, const float *restrict shift, void *z, void *y, int z_type, float *stats,
              long rows, long width, float eps, int threads) {
    IN_PARALLEL
    for (long row = 0; row < rows; row++) {
        float in[WIDEST], other[WIDEST], sum[WIDEST], out[WIDEST];
        const float *values = read_row(x, x_type, row * width, width, in);
        float mean = 0.0f, square = 0.0f;
        if (residual) {
            const float *restrict a = values, *restrict b = read_row(residual, residual_type, row * width, width, other);
            float *restrict to = open_row(z, z_type, row * width, sum);
            const float *restrict shifts = bias ? bias : ZEROS;
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

/* dz as z, and again as x where x has another type (else dx is null); sums (3, width): of weight, shift and bias. */
void add_norm_backward(const void *dy, const void *z, int z_type, const float *stats, const float *restrict weight,
                       void *dz, void *dx, int x_type, float *sums, float *parts, long rows, long width,
                       int threads) {
    IN_PARALLEL
    for (long block = 0; block < blocks_of(rows); block++) {
        float in[WIDEST], grad[WIDEST], out[WIDEST];
        float *restrict dweight = parts + block * 3 * width, *restrict dshift = dweight + width,
              *restrict dbias = dshift + width;
        memset(dweight, 0, 3 * width * sizeof(float));
        for (long row = block * BLOCK; row < end_of(block, rows); row++) {
            const float *restrict from = read_row(z, z_type, row * width, width, in);
            const float *restrict g = read_row(dy, z_type, row * width, width, grad);
            float *restrict to = open_row(dz, z_type, row * width, out);
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
            for (long i = 0; i < width; i++) {
                to[i] = rate * (g[i] * weight[i] - first - (from[i] - mean) * rate * second);
                dbias[i] += to[i];
            }
            close_row(dz, z_type, row * width, width, to);
            if (dx) {
                if (x_type == 0) memcpy((float *)dx + row * width, to, width * sizeof(float));
                close_row(dx, x_type, row * width, width, to);
            }
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

/* ---- answering: no gradients, rows of any lengths end to end without padding, products in float32 or bfloat16 ---- */

#define PASS(NAME)                                                                                                     \
    static void NAME##_only(const float *x, const float *bias, float *y, long width, int gated) {                      \
        float slope;                                                                                                   \
        if (gated)                                                                                                     \
            _Pragma("omp simd") for (long i = 0; i < width; i++) y[i] =                                                \
                NAME(x[i] + bias[i], &slope) * (x[width + i] + bias[width + i]);                                       \
        else                                                                                                           \
            _Pragma("omp simd") for (long i = 0; i < width; i++) y[i] = NAME(x[i] + bias[i], &slope);                  \
    }

PASS(gelu)
PASS(gelu_tanh)
PASS(silu)
PASS(relu)

typedef void (*activation_only)(const float *, const float *, float *, long, int);
static const activation_only ONLY[] = {gelu_only, gelu_tanh_only, silu_only, relu_only};

/* y (rows, width) = act(x + bias), or gated act of the first half times the second of x (rows, 2 width); y may be x
   where it is not gated */
static void activated(const float *x, const float *bias, float *y, long rows, long width, int kind, int gated, int threads) {
    long wide = gated ? 2 * width : width;
    IN_PARALLEL
    for (long row = 0; row < rows; row++)
        ONLY[kind](x + row * wide, bias ? bias : ZEROS, y + row * width, width, gated);
}

/* y = norm(x + bias + residual); residual may be null, and y may be x or the residual. With `sum` the sum itself is
   kept there, too. Without weight there is no norm. */
static void normed(const float *x, const float *bias, const float *residual, const float *weight, const float *shift,
                   float *sum, float *y, long rows, long width, float eps, int threads) {
    IN_PARALLEL
    for (long row = 0; row < rows; row++) {
        float held[WIDEST], mean = 0.0f, square = 0.0f;
        const float *from = x + row * width, *shifts = bias ? bias : ZEROS;
        if (residual) {
            const float *other = residual + row * width;
            for (long i = 0; i < width; i++) held[i] = from[i] + shifts[i] + other[i];
        } else
            for (long i = 0; i < width; i++) held[i] = from[i] + shifts[i];
        if (sum) memcpy(sum + row * width, held, width * sizeof(float));
        if (!weight) continue;
#pragma omp simd reduction(+ : mean)
        for (long i = 0; i < width; i++) mean += held[i];
        mean /= width;
#pragma omp simd reduction(+ : square)
        for (long i = 0; i < width; i++) square += (held[i] - mean) * (held[i] - mean);
        float rate = 1.0f / sqrtf(square / width + eps), *to = y + row * width;
        const float *added = shift ? shift : ZEROS;
        for (long i = 0; i < width; i++) to[i] = (held[i] - mean) * rate * weight[i] + added[i];
    }
}

/* Products of small tiles: `MOST` rows by two vectors of columns, whose sums fill the registers. */
#ifdef __AVX512F__
#define WIDE 16 /* floats in a vector */
#define MOST 12
#else
#define WIDE 8
#define MOST 6
#endif
#define COLUMNS (2 * WIDE)
#define DEPTH (4096 / COLUMNS) /* of a panel that stays in the first cache */
#define STRIP 192              /* rows that stay in the second */

const long panel_columns = COLUMNS, most_rows = MOST; /* for packed.py */

typedef float lanes __attribute__((vector_size(4 * WIDE)));

static inline lanes load(const float *x) {
    lanes value;
    memcpy(&value, x, sizeof value);
    return value;
}

static inline void store(float *x, lanes value) { memcpy(x, &value, sizeof value); }

/* c (rows, COLUMNS of stride c_step) = a (rows, depth of stride a_step) b (depth, COLUMNS of stride b_step), added to c
   with `add`. `ahead` is the distance to what will be read of b next. */
static inline __attribute__((always_inline)) void tile(int rows, const float *a, long a_step, const float *b,
                                                       long b_step, long depth, float *c, long c_step, int add,
                                                       long ahead) {
    lanes sums[MOST][2] = {{{0}}};
    if (add)
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            sums[i][0] = load(c + i * c_step);
            sums[i][1] = load(c + i * c_step + WIDE);
        }
    for (long k = 0; k < depth; k++) {
        lanes first = load(b + k * b_step), second = load(b + k * b_step + WIDE);
        for (long line = 0; line < COLUMNS; line += 16) __builtin_prefetch(b + k * b_step + ahead + line);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            float x = a[i * a_step + k];
            sums[i][0] += x * first;
            sums[i][1] += x * second;
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        store(c + i * c_step, sums[i][0]);
        store(c + i * c_step + WIDE, sums[i][1]);
    }
}

/* A tile of 1 to MOST rows, each number of them compiled for itself. */
#if MOST == 12
#define EACH_NUMBER_OF_ROWS(TILE) TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6) TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)
#else
#define EACH_NUMBER_OF_ROWS(TILE) TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
#endif
static void product(int rows, const float *a, long a_step, const float *b, long b_step, long depth, float *c,
                    long c_step, int add, long ahead) {
#define TILE(ROWS)                                                                                                     \
    case ROWS:                                                                                                         \
        tile(ROWS, a, a_step, b, b_step, depth, c, c_step, add, ahead);                                                \
        break;
    switch (rows) { EACH_NUMBER_OF_ROWS(TILE) }
#undef TILE
}

/* The same of bfloat16 in pairs: a (rows, depth pairs), b (depth, COLUMNS pairs). */
typedef uint32_t __attribute__((may_alias)) pair;
#if defined(__AVX512BF16__)
const long multiplies_narrow = 1;

static inline __attribute__((always_inline)) void narrow_tile(int rows, const pair *a, long a_step, const pair *b,
                                                              long depth, float *c, long c_step, int add) {
    __m512 sums[MOST][2];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        sums[i][0] = add ? _mm512_loadu_ps(c + i * c_step) : _mm512_setzero_ps();
        sums[i][1] = add ? _mm512_loadu_ps(c + i * c_step + WIDE) : _mm512_setzero_ps();
    }
    for (long k = 0; k < depth; k++) {
        __m512bh first = (__m512bh)_mm512_loadu_si512(b + k * COLUMNS);
        __m512bh second = (__m512bh)_mm512_loadu_si512(b + k * COLUMNS + WIDE);
        __builtin_prefetch(b + (DEPTH + k) * COLUMNS);
        __builtin_prefetch(b + (DEPTH + k) * COLUMNS + WIDE);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            __m512bh x = (__m512bh)_mm512_set1_epi32(a[i * a_step + k]);
            sums[i][0] = _mm512_dpbf16_ps(sums[i][0], first, x);
            sums[i][1] = _mm512_dpbf16_ps(sums[i][1], second, x);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        _mm512_storeu_ps(c + i * c_step, sums[i][0]);
        _mm512_storeu_ps(c + i * c_step + WIDE, sums[i][1]);
    }
}

static void narrow_product(int rows, const pair *a, long a_step, const pair *b, long depth, float *c, long c_step,
                           int add) {
#define TILE(ROWS)                                                                                                     \
    case ROWS:                                                                                                         \
        narrow_tile(ROWS, a, a_step, b, depth, c, c_step, add);                                                        \
        break;
    switch (rows) { EACH_NUMBER_OF_ROWS(TILE) }
#undef TILE
}
#else
const long multiplies_narrow = 0;

static void narrow_product(int rows, const pair *a, long a_step, const pair *b, long depth, float *c, long c_step,
                           int add) {}
#endif

/* The same of bytes: a (rows, depth groups) without sign, values / scale + zero, and b (depth, COLUMNS groups) with it,
   values / scale. A group is what one instruction multiplies. Behind b lie its scales and the sums of its columns,
   which `zero` is taken off by. Sums are exact, so they are the same whatever the instruction. The instructions are
   written out, because compilers copy the sums around the intrinsics, which takes up to twice as long. */
typedef struct {
    float scale;
    int32_t zero;
} grid;

typedef int32_t counts __attribute__((vector_size(4 * WIDE)));

#if defined(__AVX512VNNI__) || (defined(__AVXVNNI__) && !defined(__AVX512F__))
#define TOGETHER 4 /* bytes of a row in a group */
typedef uint8_t code;

static inline counts read_weights(const int8_t *b) {
    counts value;
    memcpy(&value, b, sizeof value);
    return value;
}

#ifdef __AVX512VNNI__
#define ADD_PRODUCTS(sum, x, weights) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(weights))
#else
#define ADD_PRODUCTS(sum, x, weights) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(weights))
#endif
#elif defined(__AVX512BW__) || (defined(__AVX2__) && !defined(__AVX512F__))
/* Bytes in 16 bits. `vpmaddubsw` multiplies bytes, but adds two products in 16 bits, which have no room for 8 bits by 8.
   With weights of 7 bits it multiplies 1.2 times as fast (docs/reports/performance.md). */
#define TOGETHER 2
typedef int16_t code;

static inline counts read_weights(const int8_t *b) {
    typedef int8_t __attribute__((vector_size(2 * WIDE), aligned(1), may_alias)) half;
    counts value;
    __asm__("vpmovsxbw %1, %0" : "=v"(value) : "m"(*(const half *)b));
    return value;
}

#define ADD_PRODUCTS(sum, x, weights)                                                                                  \
    do {                                                                                                               \
        counts both;                                                                                                   \
        __asm__("vpmaddwd %2, %1, %0" : "=v"(both) : "v"(x), "v"(weights));                                            \
        __asm__("vpaddd %1, %0, %0" : "+v"(sum) : "v"(both));                                                          \
    } while (0)
#else
#define TOGETHER 0
typedef uint8_t code;
#endif

const long multiplies_bytes = TOGETHER; /* 0 where they are not multiplied; for packed.py */

#if TOGETHER
static inline __attribute__((always_inline)) void byte_tile(int rows, const pair *a, long a_step, const int8_t *b,
                                                            long depth, const grid *grids, float *c, long c_step) {
    const int8_t *scales = b + depth * COLUMNS * TOGETHER, *ahead = scales + 8 * COLUMNS;
    counts sums[MOST][2];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) sums[i][0] = sums[i][1] = (counts){0};
    for (long k = 0; k < depth; k++) {
        const int8_t *weights = b + k * COLUMNS * TOGETHER;
        counts first = read_weights(weights), second = read_weights(weights + WIDE * TOGETHER);
        for (long line = 0; line < COLUMNS * TOGETHER; line += 64)
            __builtin_prefetch(ahead + k * COLUMNS * TOGETHER + line);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            counts x = (counts){0} + (int32_t)a[i * a_step + k];
            ADD_PRODUCTS(sums[i][0], x, first);
            ADD_PRODUCTS(sums[i][1], x, second);
        }
    }
    lanes first = load((const float *)scales), second = load((const float *)scales + WIDE);
    counts third, fourth;
    memcpy(&third, scales + 4 * COLUMNS, sizeof third);
    memcpy(&fourth, scales + 4 * (COLUMNS + WIDE), sizeof fourth);
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        counts low = sums[i][0] - grids[i].zero * third, high = sums[i][1] - grids[i].zero * fourth;
        store(c + i * c_step, __builtin_convertvector(low, lanes) * (grids[i].scale * first));
        store(c + i * c_step + WIDE, __builtin_convertvector(high, lanes) * (grids[i].scale * second));
    }
}
#endif

static void byte_product(int rows, const code *a, long in, const int8_t *b, const grid *grids, float *c, long c_step) {
#if TOGETHER
#define TILE(ROWS)                                                                                                     \
    case ROWS:                                                                                                         \
        byte_tile(ROWS, (const pair *)a, in / TOGETHER, b, in / TOGETHER, grids, c, c_step);                           \
        break;
    switch (rows) { EACH_NUMBER_OF_ROWS(TILE) }
#undef TILE
#endif
}

enum { FLOATS, PAIRS, BYTES }; /* what products multiply; packed.py knows the order */

/* n values as bytes, from the lowest to the highest of them and 0; the scale is no number where one of them is none. */
static inline grid to_bytes(const float *restrict x, code *restrict bytes, long n) {
    float low = 0.0f, high = 0.0f, none = 0.0f;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(+ : none)
    for (long i = 0; i < n; i++) {
        low = low < x[i] ? low : x[i];
        high = high > x[i] ? high : x[i];
        none += 0.0f * x[i];
    }
    float rate = high > low ? 255.0f / (high - low) : 0.0f, zero = rintf(-low * rate);
    for (long i = 0; i < n; i++) {
        float value = rintf(x[i] * rate) + zero;
        bytes[i] = (code)(int32_t)(value < 255.0f ? value : 255.0f);
    }
    return (grid){(high - low) / 255.0f + none, (int32_t)zero};
}

/* y (rows, out) = x (rows, in) w^T. panels: w (out, in) as (out / COLUMNS, in, COLUMNS), with zeros behind the last row
   of w. Of PAIRS they are bfloat16 as (out / COLUMNS, in / 2, COLUMNS, 2), and x is rounded into `held`; of BYTES
   (out / COLUMNS, in / TOGETHER, COLUMNS, TOGETHER) with what byte_tile reads behind each panel, and `held` takes the
   grids and the bytes of x. */
void multiply(const float *x, const void *panels, float *y, long rows, long in, long out, int type, void *held,
                     int threads) {
    long groups = (rows + MOST - 1) / MOST, strips = (groups + STRIP / MOST - 1) / (STRIP / MOST);
    long width = (out + COLUMNS - 1) / COLUMNS * COLUMNS, depth = in >> type, part = type == BYTES ? depth : DEPTH;
    grid *grids = held;
    code *bytes = (code *)(grids + rows);
    if (type != FLOATS) {
        IN_PARALLEL
        for (long row = 0; row < rows; row++)
            if (type == BYTES)
                grids[row] = to_bytes(x + row * in, bytes + row * in, in);
            else
                for (long i = row * in; i < (row + 1) * in; i++) ((bf16 *)held)[i] = narrow(x[i]);
    }
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads) if (threads > 1)
    for (long strip = 0; strip < strips; strip++)
        for (long from = 0; from < width; from += COLUMNS) {
            int last = from + COLUMNS > out; /* whose columns y has no room for */
            float room[STRIP * COLUMNS];
            long low = groups * strip / strips, high = groups * (strip + 1) / strips, top = rows * low / groups;
            float *to = last ? room : y + top * out + from;
            long step = last ? COLUMNS : out;
            for (long k = 0; k < depth; k += part)
                for (long group = low; group < high; group++) {
                    long row = rows * group / groups, count = rows * (group + 1) / groups - row;
                    long some = depth - k < part ? depth - k : part, at = from * depth + k * COLUMNS;
                    float *c = to + (row - top) * step;
                    if (type == BYTES)
                        byte_product(count, bytes + row * in, in, (const int8_t *)panels + from * (in + 8), grids + row, c,
                                     step);
                    else if (type == PAIRS)
                        narrow_product(count, (const pair *)held + row * depth + k, depth, (const pair *)panels + at,
                                       some, c, step, k > 0);
                    else
                        product(count, x + row * depth + k, depth, (const float *)panels + at, COLUMNS, some, c, step,
                                k > 0, DEPTH * COLUMNS);
                }
            if (last)
                for (long row = top; row < rows * high / groups; row++)
                    memcpy(y + row * out + from, room + (row - top) * COLUMNS, (out - from) * sizeof(float));
        }
}

static inline long up_to_columns(long n) { return (n + COLUMNS - 1) / COLUMNS * COLUMNS; }

static inline long least(long x, long y) { return x < y ? x : y; }

static inline float highest(const float *restrict x, long n, float most) {
#pragma omp simd reduction(max : most)
    for (long j = 0; j < n; j++) most = most > x[j] ? most : x[j];
    return most;
}

/* x = exp(x - most), and their sum */
static inline float exponentials(float *restrict x, long n, float most) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (long j = 0; j < n; j++) {
        x[j] = exponential(x[j] - most);
        sum += x[j];
    }
    return sum;
}

extern int omp_get_thread_num(void);

/* y = softmax(scale (q + bias) (k + bias)^T) (v + bias) within each row of tokens; row r holds the tokens from starts[r]
   to starts[r + 1]. kv (tokens, 2 heads size) has keys and behind them values; kv_bias as much of each, or null. q (..,
   heads size) has a row for every token, or with `one` a row for the first token of each row, and y has as many. cosine and sine rotate queries and keys as in split_heads, or are null. room: for each thread
   `each` floats, at least MOST (size + n + width) + n (size + width), n the longest row and width the size of a head,
   both up to a multiple of COLUMNS.

   With a reach of 0 or more, a token reads only keys that are so many tokens away at most, and the first `globals`
   tokens of its row; those read all. Then scores are computed of the columns that some query of a tile reads alone. */
static void attend(const float *q, const float *q_bias, const float *kv, const float *kv_bias, const long *starts,
                   int one, float *y, const float *cosine, const float *sine, float *room, long each, long rows,
                   long heads, long size, long reach, long globals, float scale, int threads) {
    long hidden = heads * size, width = up_to_columns(size);
#pragma omp parallel for schedule(static, 1) num_threads(threads) if (threads > 1)
    for (long part = 0; part < rows * heads; part++) {
        long r = part / heads, a = part % heads, from = starts[r], n = starts[r + 1] - from;
        if (one && reach >= 0 && !globals && n > reach + 1) n = reach + 1;
        long wide = up_to_columns(n);
        float *queries = room + (threads > 1 ? omp_get_thread_num() : 0) * each, *scores = queries + MOST * size;
        float *out = scores + MOST * wide, *keys = out + MOST * width, *values = keys + wide * size;
        for (long j = 0; j < n; j++) {
            const float *k = kv + (from + j) * 2 * hidden + a * size, *v = k + hidden;
            const float *k_bias = kv_bias ? kv_bias + a * size : ZEROS, *v_bias = kv_bias ? k_bias + hidden : ZEROS;
            float *value = values + j * width;
            if (cosine) {
                for (long i = 0; i < size; i++) out[i] = k[i] + k_bias[i];
                rotate(out, value, cosine + j * size, sine + j * size, size / 2, 1.0f);
                for (long i = 0; i < size; i++) keys[i * wide + j] = value[i];
            } else
                for (long i = 0; i < size; i++) keys[i * wide + j] = k[i] + k_bias[i];
            for (long i = 0; i < size; i++) value[i] = v[i] + v_bias[i];
            for (long i = size; i < width; i++) value[i] = 0.0f;
        }
        for (long i = 0; i < size; i++)
            for (long j = n; j < wide; j++) keys[i * wide + j] = 0.0f;
        long asked = one ? 1 : n, groups = (asked + MOST - 1) / MOST;
        for (long group = 0; group < groups; group++) {
            long first = asked * group / groups, count = asked * (group + 1) / groups - first;
            for (long i = 0; i < count; i++) {
                const float *x = q + (one ? r : from + first + i) * hidden + a * size;
                const float *bias = q_bias ? q_bias + a * size : ZEROS;
                float *query = queries + i * size;
                if (cosine) {
                    for (long d = 0; d < size; d++) out[d] = scale * (x[d] + bias[d]);
                    rotate(out, query, cosine + (first + i) * size, sine + (first + i) * size, size / 2, 1.0f);
                } else
                    for (long d = 0; d < size; d++) query[d] = scale * (x[d] + bias[d]);
            }
            /* The columns that are read: those in front, of global tokens, and those from low to high. */
            long front = 0, low = 0, high = wide;
            if (reach >= 0 && first >= globals) {
                low = first > reach ? (first - reach) / COLUMNS * COLUMNS : 0;
                high = up_to_columns(least(first + count + reach, n));
                front = least(up_to_columns(globals), low);
            }
            for (long j = front ? 0 : low; j < high; j = j + COLUMNS == front ? low : j + COLUMNS)
                product(count, queries, size, keys + j, wide, size, scores + j, wide, 0, 0);
            for (long i = 0; i < count; i++) {
                float *restrict s = scores + i * wide, most = -INFINITY, sum = 0.0f;
                long p = first + i;
                if (reach >= 0 && p >= globals) {
                    for (long j = globals; j < front; j++) s[j] = -INFINITY;
                    for (long j = low > globals ? low : globals; j < p - reach; j++) s[j] = -INFINITY;
                    for (long j = p + reach + 1; j < high; j++) s[j] = -INFINITY;
                }
                for (long j = n; j < high; j++) s[j] = -INFINITY; /* so that all loops take whole vectors */
                most = highest(s, front, most);
                most = highest(s + low, high - low, most);
                sum = exponentials(s, front, most) + exponentials(s + low, high - low, most);
                float rate = 1.0f / sum;
                for (long j = 0; j < front; j++) s[j] *= rate;
                for (long j = low; j < high; j++) s[j] *= rate;
            }
            for (long d = 0; d < width; d += COLUMNS) {
                if (front) product(count, scores, wide, values + d, width, front, out + d, width, 0, 0);
                product(count, scores + low, wide, values + low * width + d, width, least(high, n) - low, out + d, width,
                        front > 0, 0);
            }
            for (long i = 0; i < count; i++)
                memcpy(y + (one ? r : from + first + i) * hidden + a * size, out + i * width, size * sizeof(float));
        }
    }
}

enum { Q, KV, ATTENDED, INNER, OUTPUT, QKV_BIAS, ATTENDED_BIAS, INNER_BIAS, OUTPUT_BIAS, ATTENTION_NORM,
       ATTENTION_SHIFT, FEEDFORWARD_NORM, FEEDFORWARD_SHIFT }; /* packed.py knows the order */

/* One layer of `tokens` in `rows`, as in `attend`: state (tokens, H) becomes that after it, with `one` of the first token
   of each row alone, (rows, H). parts: the addresses of panels, biases and norms in the order above, 0 for what is not
   there; eps of both norms. pre: whether a norm stands before each block, or else behind; the first one only with
   `normed_first`. room: after the room of `attend` for all threads, tokens (6 H + `wide` + inner) floats, wide being
   what the first product of the feed-forward block gives, and, unless `type` is FLOATS, behind them 2 bytes for each
   element of the widest input of a product, and 8 for each token. */
void layer(float *state, const int64_t *parts, const float *eps, const long *starts, const float *cosine,
           const float *sine, float *room, long each, long tokens, long rows, long heads, long size, long inner,
           long reach, long globals, int kind, int gated, int pre, int normed_first, int one, int type, int threads) {
#define PART(NAME) ((const float *)(intptr_t)parts[NAME])
    long hidden = heads * size, wide = gated ? 2 * inner : inner, count = one ? rows : tokens;
    float *read = room + each * threads, *x = read + tokens * hidden, *q = x + tokens * hidden;
    float *kv = q + tokens * hidden, *y = kv + 2 * tokens * hidden, *in = y + tokens * hidden;
    float *act = gated ? in + tokens * wide : in;
    float *held = in + tokens * (wide + inner); /* what products multiply in place of their input */
    const float *kv_bias = PART(QKV_BIAS) ? PART(QKV_BIAS) + hidden : 0, *from = state;

    if (pre && normed_first) {
        normed(state, 0, 0, PART(ATTENTION_NORM), PART(ATTENTION_SHIFT), 0, read, tokens, hidden, eps[0], threads);
        from = read;
    }
    multiply(from, PART(KV), kv, tokens, hidden, 2 * hidden, type, held, threads);
    if (one) {
        for (long row = 0; row < rows; row++) {
            memcpy(x + row * hidden, state + starts[row] * hidden, hidden * sizeof(float));
            memcpy(y + row * hidden, from + starts[row] * hidden, hidden * sizeof(float));
        }
        from = y;
    } else
        x = state;
    multiply(from, PART(Q), q, count, hidden, hidden, type, held, threads);
    attend(q, PART(QKV_BIAS), kv, kv_bias, starts, one, y, cosine, sine, room, each, rows, heads, size, reach, globals,
           1.0f / sqrtf(size), threads);
    multiply(y, PART(ATTENDED), q, count, hidden, hidden, type, held, threads);
    normed(q, PART(ATTENDED_BIAS), x, pre ? 0 : PART(ATTENTION_NORM), PART(ATTENTION_SHIFT), pre ? x : 0, x, count,
           hidden, eps[0], threads);

    from = x;
    if (pre) {
        normed(x, 0, 0, PART(FEEDFORWARD_NORM), PART(FEEDFORWARD_SHIFT), 0, y, count, hidden, eps[1], threads);
        from = y;
    }
    multiply(from, PART(INNER), in, count, hidden, wide, type, held, threads);
    activated(in, PART(INNER_BIAS), act, count, inner, kind, gated, threads);
    multiply(act, PART(OUTPUT), q, count, inner, hidden, type, held, threads);
    normed(q, PART(OUTPUT_BIAS), x, pre ? 0 : PART(FEEDFORWARD_NORM), PART(FEEDFORWARD_SHIFT), pre ? state : 0, state,
           count, hidden, eps[1], threads);
#undef PART
}

/* ---- the step of AdamW without bias correction, and of LAMB ------------------------------------------------------ */

#define STRETCH 16384 /* elements of a tensor whose squares are summed together; compiled.py knows it */

/* first, second: 1 - beta1, 1 - beta2. m and v take the gradient in; update = m / (sqrt(v) + eps) + decay w.
   w = w - rate update at once, or, given room for it, the update is kept, with the squares of w and of it by stretch. */
void moments(const float *restrict gradient, float *restrict m, float *restrict v, float *restrict w,
             float *restrict update, float *squares, long n, float first, float second, float eps, float decay,
             float rate, int threads) {
    IN_PARALLEL
    for (long from = 0; from < n; from += STRETCH) {
        long to = from + STRETCH < n ? from + STRETCH : n;
        float held[STRETCH], weights = 0.0f, updates = 0.0f;
        for (long i = from; i < to; i++) {
            float g = gradient[i];
            m[i] += first * (g - m[i]);
            v[i] = (1.0f - second) * v[i] + second * g * g;
            held[i - from] = m[i] / (sqrtf(v[i]) + eps) + decay * w[i];
        }
        if (!update) {
            for (long i = from; i < to; i++) w[i] -= rate * held[i - from];
            continue;
        }
#pragma omp simd reduction(+ : weights, updates)
        for (long i = from; i < to; i++) {
            weights += w[i] * w[i];
            updates += held[i - from] * held[i - from];
            update[i] = held[i - from];
        }
        squares[from / STRETCH * 2] = weights;
        squares[from / STRETCH * 2 + 1] = updates;
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
