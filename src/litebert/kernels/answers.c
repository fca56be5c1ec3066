/* A whole network that answers on a CPU: embedding, layers, pooling and head in one call. network.py fills the
   structures below. Rows of tokens lie end to end, so nothing is computed for padding. All is float32, but for the
   products of layers where bfloat16 or bytes are asked for.

   All threads run the same function, `compute`, divide each stage among them, and meet between stages. Each number is
   computed by one thread, in an order that depends neither on the number of threads nor on the other rows of the batch.
   So an answer depends on its row alone. */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "functions.h"

static inline long least(long x, long y) { return x < y ? x : y; }
static inline long most(long x, long y) { return x > y ? x : y; }

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* One pool for the process. Its threads look for work for some microseconds and then sleep, so that other threads of the
   process and other programs have the cores. It serves one caller at a time; another that comes meanwhile computes on its
   own thread alone. */

#define THREADS 256
#define LOOKS 2000 /* before a thread sleeps: 15 to 90 microseconds */

#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() ((void)0)
#endif

/* Wait while the value is what it was; `waiting` counts who sleeps. One that yielded instead would lose its core to
   other programs for milliseconds. */
static void wait_for(atomic_int *value, int before, atomic_int *waiting) {
    for (long look = 0; look < LOOKS; look++) {
        if (atomic_load_explicit(value, memory_order_acquire) != before) return;
        PAUSE();
    }
    atomic_fetch_add(waiting, 1);
    while (atomic_load(value) == before)
#ifdef __linux__
        syscall(SYS_futex, value, FUTEX_WAIT_PRIVATE, before, 0, 0, 0);
#else
        sched_yield();
#endif
    atomic_fetch_sub(waiting, 1);
}

static void wake(atomic_int *value, atomic_int *waiting) {
#ifdef __linux__
    if (atomic_load(waiting)) syscall(SYS_futex, value, FUTEX_WAKE_PRIVATE, THREADS, 0, 0, 0);
#endif
}

typedef struct {
    atomic_int arrived, turn, waiting;
    int threads;
} team;

static void barrier(team *team) {
    if (team->threads == 1) return;
    int turn = atomic_load_explicit(&team->turn, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) == team->threads - 1) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        atomic_store(&team->turn, turn + 1);
        wake(&team->turn, &team->waiting);
        return;
    }
    wait_for(&team->turn, turn, &team->waiting);
}

typedef void (*work)(void *job, int thread, team *team);

static struct {
    pthread_mutex_t caller;
    atomic_int number, left; /* of the last job; threads that have not done it */
    atomic_int sleeping, waiting;
    int started, forgets, seen[THREADS];
    work function;
    void *job;
    team team;
} pool = {.caller = PTHREAD_MUTEX_INITIALIZER};

static void *serve(void *place) {
    int thread = (int)(intptr_t)place, number = pool.seen[thread];
    for (;;) {
        wait_for(&pool.number, number++, &pool.sleeping);
        if (thread < pool.team.threads) pool.function(pool.job, thread, &pool.team);
        if (atomic_fetch_sub(&pool.left, 1) == 1) wake(&pool.left, &pool.waiting);
    }
    return 0;
}

static void forget_threads(void) { /* which a forked process does not have */
    pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    pool.caller = unlocked;
    pool.started = 0;
    atomic_store(&pool.sleeping, 0);
    atomic_store(&pool.waiting, 0);
    atomic_store(&pool.team.waiting, 0);
    atomic_store(&pool.team.arrived, 0); /* of a job that another thread was at */
}

static void start_thread(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    pool.seen[pool.started + 1] = atomic_load(&pool.number);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (!pthread_create(&thread, &attributes, serve, (void *)(intptr_t)(pool.started + 1))) pool.started++;
    pthread_attr_destroy(&attributes);
}

static void run(work function, void *job, long threads) {
    if (threads > THREADS) threads = THREADS;
    if (threads <= 1 || pthread_mutex_trylock(&pool.caller)) {
        team alone = {.threads = 1};
        function(job, 0, &alone);
        return;
    }
    if (!pool.forgets) pool.forgets = !pthread_atfork(0, 0, forget_threads);
    for (long missing = threads - 1 - pool.started; missing > 0; missing--) start_thread();
    pool.function = function;
    pool.job = job;
    pool.team.threads = (int)least(threads, pool.started + 1); /* fewer where the system gave no more */
    atomic_store(&pool.left, pool.started);
    atomic_fetch_add(&pool.number, 1);
    wake(&pool.number, &pool.sleeping);
    function(job, 0, &pool.team);
    for (int left; (left = atomic_load_explicit(&pool.left, memory_order_acquire));)
        wait_for(&pool.left, left, &pool.waiting);
    pthread_mutex_unlock(&pool.caller);
}

/* ---- products ------------------------------------------------------------------------------------------------------ */

/* Products of small tiles: `MOST` rows by `VECTORS` vectors of columns, whose sums fill the registers. */
#if defined(__AVX512F__)
#define WIDE 16 /* floats in a vector */
#define VECTORS 2
#define MOST 12
#elif defined(__AVX__)
#define WIDE 8
#define VECTORS 2
#define MOST 6
#else
#define WIDE 4
#define VECTORS 4
#define MOST 6
#endif
#define COLUMNS (VECTORS * WIDE)
#define DEPTH (4096 / COLUMNS) /* of a panel that stays in the first cache */
#define STRIP 192              /* rows that stay in the second */

/* Weights are packed in one order for all processors (packing.py): panels of 16 columns, so that a tile reads one panel
   or, where vectors are wider, two. Where vector V of a tile's columns lies, of which the next panel lies NEXT behind: */
#define PANEL 16
#define PLACE(V, NEXT, SIZE) ((V) * WIDE / PANEL * (NEXT) + (V) * WIDE % PANEL * (SIZE))
#define EACH_ROW UNROLLED for (int i = 0; i < rows; i++)
#define EACH_VECTOR UNROLLED for (int v = 0; v < VECTORS; v++)

typedef float lanes __attribute__((vector_size(4 * WIDE)));

#ifdef __clang__
#define SHUFFLE(TYPE, X, Y, ...) __builtin_shufflevector(X, Y, __VA_ARGS__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)") /* for some processors it would do so, and run out of registers */
#else
#define SHUFFLE(TYPE, X, Y, ...) __builtin_shuffle(X, Y, (TYPE){__VA_ARGS__})
#define UNROLLED _Pragma("GCC unroll 16")
#define ROLLED
#endif

static inline lanes load(const float *x) {
    lanes value;
    memcpy(&value, x, sizeof value);
    return value;
}

static inline void store(float *x, lanes value) { memcpy(x, &value, sizeof value); }

/* c (rows, COLUMNS of stride c_step) = a (rows, depth of stride a_step) b (depth, COLUMNS of stride b_step), added to c
   with `add`. The next PANEL of b's columns lies `next` behind. `ahead` is the distance to what will be read of b. */
static inline __attribute__((always_inline)) void tile(int rows, const float *a, long a_step, const float *b,
                                                       long b_step, long next, long depth, float *c, long c_step,
                                                       int add, long ahead) {
    lanes sums[MOST][VECTORS] = {{{0}}};
    if (add)
        EACH_ROW EACH_VECTOR sums[i][v] = load(c + i * c_step + v * WIDE);
    ROLLED for (long k = 0; k < depth; k++) {
        lanes columns[VECTORS];
        EACH_VECTOR columns[v] = load(b + k * b_step + PLACE(v, next, 1));
        for (long panel = 0; panel < COLUMNS / PANEL; panel++) __builtin_prefetch(b + k * b_step + panel * next + ahead);
        EACH_ROW {
            float x = a[i * a_step + k];
            EACH_VECTOR sums[i][v] += x * columns[v];
        }
    }
    EACH_ROW EACH_VECTOR store(c + i * c_step + v * WIDE, sums[i][v]);
}

/* A tile of 1 to MOST rows, each number of them compiled for itself. */
#if MOST == 12
#define EACH_NUMBER_OF_ROWS(TILE) TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6) TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)
#else
#define EACH_NUMBER_OF_ROWS(TILE) TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
#endif
static void product(int rows, const float *a, long a_step, const float *b, long b_step, long next, long depth,
                    float *c, long c_step, int add, long ahead) {
#define TILE(ROWS)                                                                                                     \
    case ROWS:                                                                                                         \
        tile(ROWS, a, a_step, b, b_step, next, depth, c, c_step, add, ahead);                                        \
        break;
    switch (rows) { EACH_NUMBER_OF_ROWS(TILE) }
#undef TILE
}

/* The same of bfloat16 in pairs: a (rows, depth pairs), b panels of pairs, of which the next lies `next` behind. */
typedef uint32_t __attribute__((may_alias)) pair;
#if defined(__AVX512BF16__)
const long multiplies_narrow = 1;

static inline __attribute__((always_inline)) void narrow_tile(int rows, const pair *a, long a_step, const pair *b,
                                                              long next, long depth, float *c, long c_step, int add) {
    __m512 sums[MOST][2];
    EACH_ROW {
        sums[i][0] = add ? _mm512_loadu_ps(c + i * c_step) : _mm512_setzero_ps();
        sums[i][1] = add ? _mm512_loadu_ps(c + i * c_step + WIDE) : _mm512_setzero_ps();
    }
    for (long k = 0; k < depth; k++) {
        __m512bh first = (__m512bh)_mm512_loadu_si512(b + k * PANEL);
        __m512bh second = (__m512bh)_mm512_loadu_si512(b + next + k * PANEL);
        __builtin_prefetch(b + (DEPTH + k) * PANEL);
        __builtin_prefetch(b + next + (DEPTH + k) * PANEL);
        EACH_ROW {
            __m512bh x = (__m512bh)_mm512_set1_epi32(a[i * a_step + k]);
            sums[i][0] = _mm512_dpbf16_ps(sums[i][0], first, x);
            sums[i][1] = _mm512_dpbf16_ps(sums[i][1], second, x);
        }
    }
    EACH_ROW {
        _mm512_storeu_ps(c + i * c_step, sums[i][0]);
        _mm512_storeu_ps(c + i * c_step + WIDE, sums[i][1]);
    }
}

static void narrow_product(int rows, const pair *a, long a_step, const pair *b, long next, long depth, float *c,
                           long c_step, int add) {
#define TILE(ROWS)                                                                                                     \
    case ROWS:                                                                                                         \
        narrow_tile(ROWS, a, a_step, b, next, depth, c, c_step, add);                                                  \
        break;
    switch (rows) { EACH_NUMBER_OF_ROWS(TILE) }
#undef TILE
}
#else
const long multiplies_narrow = 0;

static void narrow_product(int rows, const pair *a, long a_step, const pair *b, long next, long depth, float *c,
                           long c_step, int add) {}
#endif

/* The same of bytes: a (rows, depth groups), values / scale + zero, and b panels of groups with it, values /
   scale. A group has four bytes of a row. Behind each panel lie its scales and the sums of its columns, which `zero` is
   taken off by. Sums are exact, so they are the same whatever the instruction. The instructions are written out, because
   compilers copy the sums around the intrinsics, which takes up to twice as long. */
typedef struct {
    float scale;
    int32_t zero;
} grid;

typedef int32_t counts __attribute__((vector_size(4 * WIDE)));

#if defined(__AVX512VNNI__) || (defined(__AVXVNNI__) && !defined(__AVX512F__)) || defined(__ARM_NEON)
#define TOGETHER 4 /* bytes of a row that are multiplied together */

static inline counts read_weights(const int8_t *b, int part) {
    counts value;
    memcpy(&value, b, sizeof value);
    return value;
}

#ifdef __ARM_NEON
typedef int8_t code;
#define LOWEST 128 /* what a code is less than its value, because bytes are multiplied with their signs */
#ifdef __ARM_FEATURE_DOTPROD
#define ADD_PRODUCTS(sum, x, weights) sum = (counts)vdotq_s32((int32x4_t)sum, (int8x16_t)weights, (int8x16_t)x)
#else
/* Two products have room in 16 bits, for no weight is -128. */
#define ADD_PRODUCTS(sum, x, weights)                                                                                  \
    do {                                                                                                               \
        int16x8_t low = vmull_s8(vget_low_s8((int8x16_t)weights), vget_low_s8((int8x16_t)x));                          \
        int16x8_t high = vmull_high_s8((int8x16_t)weights, (int8x16_t)x);                                              \
        sum = (counts)vpadalq_s16((int32x4_t)sum, vpaddq_s16(low, high));                                              \
    } while (0)
#endif
#else
typedef uint8_t code;
#define LOWEST 0
#ifdef __AVX512VNNI__
#define ADD_PRODUCTS(sum, x, weights) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(weights))
#else
#define ADD_PRODUCTS(sum, x, weights) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(weights))
#endif
#endif
#elif defined(__AVX512BW__) || (defined(__AVX2__) && !defined(__AVX512F__))
/* Bytes in 16 bits. `vpmaddubsw` multiplies bytes, but adds two products in 16 bits, which have no room for 8 bits by 8.
   With weights of 7 bits it multiplies 1.2 times as fast (docs/reports/performance.md). */
#define TOGETHER 2
typedef int16_t code;
#define LOWEST 0

/* The first and third byte of each group, or the second and fourth. */
static inline counts read_weights(const int8_t *b, int part) {
    typedef int16_t words __attribute__((vector_size(4 * WIDE)));
    words value;
    memcpy(&value, b, sizeof value);
    return (counts)((part ? value : value << 8) >> 8);
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
#define LOWEST 0
#endif

const long multiplies_bytes = TOGETHER; /* 0 where they are not multiplied; for network.py */

#if TOGETHER
static inline __attribute__((always_inline)) void byte_tile(int rows, const pair *a, long a_step, const int8_t *b,
                                                            long depth, const grid *grids, float *c, long c_step) {
    long next = (depth + 2) * 4 * PANEL;
    const int8_t *scales = b + depth * 4 * PANEL, *ahead = b + COLUMNS / PANEL * next;
    counts sums[MOST][VECTORS];
    EACH_ROW EACH_VECTOR sums[i][v] = (counts){0};
    ROLLED for (long k = 0; k < depth; k++) {
        for (long panel = 0; panel < COLUMNS / PANEL; panel++) __builtin_prefetch(ahead + panel * next + k * 4 * PANEL);
        for (int part = 0; part < 4 / TOGETHER; part++) {
            counts weights[VECTORS];
            EACH_VECTOR weights[v] = read_weights(b + k * 4 * PANEL + PLACE(v, next, 4), part);
            EACH_ROW {
                counts x = (counts){0} + (int32_t)a[i * a_step + k * 4 / TOGETHER + part];
                EACH_VECTOR ADD_PRODUCTS(sums[i][v], x, weights[v]);
            }
        }
    }
    EACH_VECTOR {
        const int8_t *place = scales + PLACE(v, next, 4);
        lanes scale = load((const float *)place);
        counts columns;
        memcpy(&columns, place + 4 * PANEL, sizeof columns);
        EACH_ROW
            store(c + i * c_step + v * WIDE,
                  __builtin_convertvector(sums[i][v] - grids[i].zero * columns, lanes) * (grids[i].scale * scale));
    }
}
#endif

static void byte_product(int rows, const code *a, long in, const int8_t *b, const grid *grids, float *c, long c_step) {
#if TOGETHER
#define TILE(ROWS)                                                                                                     \
    case ROWS:                                                                                                         \
        byte_tile(ROWS, (const pair *)a, in / TOGETHER, b, in / 4, grids, c, c_step);                                  \
        break;
    switch (rows) { EACH_NUMBER_OF_ROWS(TILE) }
#undef TILE
#endif
}

enum { FLOATS, PAIRS, BYTES }; /* what products multiply; network.py knows the order */

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
        bytes[i] = (code)((int32_t)(value < 255.0f ? value : 255.0f) - LOWEST);
    }
#if TOGETHER == 2 /* a group is read by its first and third bytes, and then by the others */
    typedef code half __attribute__((vector_size(8 * sizeof(code)), aligned(sizeof(code)), may_alias));
    for (long i = 0; i + 8 <= n; i += 8)
        *(half *)(bytes + i) = SHUFFLE(half, *(half *)(bytes + i), *(half *)(bytes + i), 0, 2, 1, 3, 4, 6, 5, 7);
    if (n % 8) {
        code second = bytes[n - 3];
        bytes[n - 3] = bytes[n - 2];
        bytes[n - 2] = second;
    }
#endif
    return (grid){(high - low) / 255.0f + none, (int32_t)zero - LOWEST};
}

/* ---- a network ----------------------------------------------------------------------------------------------------- */

typedef struct {
    const void *panels; /* w (out, in), as packing.py says */
    const float *bias;  /* with zeros up to a multiple of COLUMNS; null: none */
    int64_t in, out;
} map;

typedef struct {
    const float *weight, *shift; /* no weight: no norm */
} norm;

typedef struct {
    map q, kv, attended, inner, output;
    norm attention, feedforward;
} layer;

enum { GELU, GELU_TANH, SILU, RELU, TANH, NONE }; /* what follows a map */

typedef struct { /* rows of numbers of a type, each of BYTES with its scale behind it */
    const void *rows;
    int64_t type;
} table;

typedef struct { /* a step of a head: norm(act(x w^T + b)) */
    map map;
    table table; /* w by its rows, (out, in), in place of panels */
    norm norm;
    int64_t activation;
} step;

enum { FIRST, MEAN, TOKENS, CHOSEN, UNIT }; /* what a head reads: the first token of each row, their mean, all, some, or
                                               the mean scaled to length 1 */

typedef struct {
    int64_t hidden, heads, inner, layers, embedding, offset, kind, gated, pre, first_norm, norm_after, type, reach,
        globals, vocabulary, kinds, positions_of_row;
    double eps;
    table words;
    const float *positions, *types; /* (.., embedding); null: none */
    map project;                            /* of the embedding; no panels: none */
    norm embedded, last;
    const layer *const *stack; /* the layers, of which some may be the same */
    const uint8_t *windowed;
    const float *cosine[2], *sine[2]; /* (positions, head size) of other layers and of windowed ones; null: no rotation */
    int64_t reads, steps;
    const step *head;
} network;

typedef struct {
    const network *net;
    const int32_t *ids, *kinds; /* (tokens,); no kinds: all are 0 */
    const int64_t *starts;      /* (rows + 1,): where each row begins, and `tokens` */
    const int64_t *chosen;      /* (count,) tokens, of CHOSEN */
    int64_t tokens, rows, count, first, end; /* the layers from `first` to before `end`; the embedding before 0 */
    float *state, *room, *result; /* (tokens, hidden), or null where nobody reads it; `space` floats; what the head gives */
    int64_t space, longest;       /* `longest` is what `answer` found, or the number that it refuses */
} batch;

#define ROWS_OF(N) for (long row = (N) * thread / team->threads; row < (N) * (thread + 1) / team->threads; row++)

static inline long up_to_columns(long n) { return (n + COLUMNS - 1) / COLUMNS * COLUMNS; }

/* Bytes of x, of which a product in `type` reads so many a row, with a grid for each row. */
static inline long held_bytes(long rows, long width, int type) {
    return type == FLOATS ? 0 : rows * (width * (long)sizeof(pair) / 2 + (long)sizeof(grid));
}

/* The row as products read it, in `held`: grids of all rows, and behind them bytes; or pairs. */
static inline void narrow_row(const float *restrict x, void *held, long row, long rows, long width, int type) {
    if (type == BYTES) ((grid *)held)[row] = to_bytes(x, (code *)((grid *)held + rows) + row * width, width);
    if (type == PAIRS)
        for (long i = 0; i < width; i++) ((bf16 *)held)[row * width + i] = narrow(x[i]);
}

static const float ZEROS[COLUMNS];

static inline float tanh_of(float x, float *slope) { /* tanh */
    *slope = 0.0f;
    return 2.0f * logistic(2.0f * x) - 1.0f;
}

static inline float identity(float x, float *slope) {
    *slope = 1.0f;
    return x;
}

/* y = act(y + bias), in a tile of COLUMNS */
#define FINISH(NAME)                                                                                                   \
    static void finish_##NAME(float *y, long y_step, long rows, const float *restrict bias) {                          \
        float slope;                                                                                                   \
        for (long row = 0; row < rows; row++, y += y_step)                                                             \
            _Pragma("omp simd") for (long i = 0; i < COLUMNS; i++) y[i] = NAME(y[i] + bias[i], &slope);                \
    }

FINISH(gelu)
FINISH(gelu_tanh)
FINISH(silu)
FINISH(relu)
FINISH(tanh_of)
FINISH(identity)

static void (*const FINISHES[])(float *, long, long, const float *) = {finish_gelu,     finish_gelu_tanh, finish_silu,
                                                                       finish_relu, finish_tanh_of,  finish_identity};

/* y (rows, out of stride y_step) = act(x w^T + bias), this thread's part of it. x (rows, in), or of another type than
   FLOATS `held`. */
static void multiply(const map *map, const float *x, const void *held, float *y, long y_step, long rows, int activation,
                     int type, int thread, team *team) {
    long in = map->in, out = map->out;
    long groups = (rows + MOST - 1) / MOST, strips = (groups + STRIP / MOST - 1) / (STRIP / MOST);
    long width = up_to_columns(out), depth = in >> type, part = type == BYTES ? depth : DEPTH;
    const grid *grids = held;
    const code *bytes = (const code *)(grids + rows);
    long tiles = strips * (width / COLUMNS);
    for (long number = tiles * thread / team->threads; number < tiles * (thread + 1) / team->threads; number++) {
        long strip = number / (width / COLUMNS), from = number % (width / COLUMNS) * COLUMNS;
        int last = from + COLUMNS > out; /* whose columns y has no room for */
        float room[STRIP * COLUMNS];
        long low = groups * strip / strips, high = groups * (strip + 1) / strips, top = rows * low / groups;
        float *to = last ? room : y + top * y_step + from;
        long step = last ? COLUMNS : y_step;
        for (long k = 0; k < depth; k += part)
            for (long group = low; group < high; group++) {
                long row = rows * group / groups, count = rows * (group + 1) / groups - row;
                long some = least(depth - k, part), at = from * depth + k * PANEL;
                float *c = to + (row - top) * step;
                if (type == BYTES)
                    byte_product(count, bytes + row * in, in, (const int8_t *)map->panels + from * (in + 8), grids + row, c,
                                 step);
                else if (type == PAIRS)
                    narrow_product(count, (const pair *)held + row * depth + k, depth, (const pair *)map->panels + at,
                                   depth * PANEL, some, c, step, k > 0);
                else
                    product(count, x + row * depth + k, depth, (const float *)map->panels + at, PANEL,
                            depth * PANEL, some, c, step, k > 0, DEPTH * PANEL);
                if (k + part >= depth && (map->bias || activation != NONE))
                    FINISHES[activation](c, step, count, map->bias ? map->bias + from : ZEROS);
            }
        if (last)
            for (long row = top; row < rows * high / groups; row++)
                memcpy(y + row * y_step + from, room + (row - top) * COLUMNS, (out - from) * sizeof(float));
    }
}

/* ---- tables -------------------------------------------------------------------------------------------------------- */

static inline long row_bytes(long width, int type) { return type == BYTES ? width + 4 : width * (type == PAIRS ? 2 : 4); }

static inline float scale_of(const char *row, long width, int type) {
    float scale = 1.0f;
    if (type == BYTES) memcpy(&scale, row + width, 4);
    return scale;
}

/* A number of a row, and a vector of them, without its scale. */
static inline float number_at(const char *row, long i, int type) {
    if (type == BYTES) return ((const int8_t *)row)[i];
    return type == PAIRS ? widen(((const bf16 *)row)[i]) : ((const float *)row)[i];
}

static inline lanes numbers_at(const char *row, long i, int type) {
    if (type == BYTES) {
        int8_t __attribute__((vector_size(WIDE))) bytes;
        memcpy(&bytes, row + i, sizeof bytes);
        return __builtin_convertvector(__builtin_convertvector(bytes, counts), lanes);
    }
    if (type == PAIRS) {
        uint16_t __attribute__((vector_size(2 * WIDE))) halves;
        memcpy(&halves, row + 2 * i, sizeof halves);
        return (lanes)(__builtin_convertvector(halves, counts) << 16);
    }
    return load((const float *)row + i);
}

static void read_row(const table *table, long number, float *restrict y, long width) {
    int type = (int)table->type;
    const char *row = (const char *)table->rows + number * row_bytes(width, type);
    if (type == FLOATS)
        memcpy(y, row, width * sizeof(float));
    else {
        float scale = scale_of(row, width, type);
        for (long i = 0; i < width; i++) y[i] = scale * number_at(row, i, type);
    }
}

/* y (rows, out) = x (rows, in) w^T + bias for the rows w (out, in) of a table: a part of them */
static inline __attribute__((always_inline)) void dot(const step *step, const float *x, float *y, long rows, int thread,
                                                      team *team, int type) {
    long in = step->map.in, out = step->map.out, whole = in / WIDE * WIDE;
    for (long at = out * thread / team->threads; at < out * (thread + 1) / team->threads; at += 4) {
        long words = least(4, out * (thread + 1) / team->threads - at);
        const char *w[4];
        for (long j = 0; j < 4; j++)
            w[j] = (const char *)step->table.rows + (at + least(j, words - 1)) * row_bytes(in, type);
        for (long row = 0; row < rows; row += 2) {
            const float *a = x + row * in, *b = row + 1 < rows ? a + in : a;
            lanes first[4] = {{0}}, second[4] = {{0}};
            for (long k = 0; k < whole; k += WIDE) {
                lanes left = load(a + k), right = load(b + k);
                UNROLLED for (int j = 0; j < 4; j++) {
                    lanes word = numbers_at(w[j], k, type);
                    first[j] += left * word;
                    second[j] += right * word;
                }
            }
            for (long j = 0; j < words; j++) {
                float one = 0.0f, two = 0.0f, scale = scale_of(w[j], in, type);
                for (int lane = 0; lane < WIDE; lane++) {
                    one += first[j][lane];
                    two += second[j][lane];
                }
                for (long k = whole; k < in; k++) {
                    one += a[k] * number_at(w[j], k, type);
                    two += b[k] * number_at(w[j], k, type);
                }
                y[row * out + at + j] = scale * one + step->map.bias[at + j];
                if (row + 1 < rows) y[(row + 1) * out + at + j] = scale * two + step->map.bias[at + j];
            }
        }
    }
}

static void dot_products(const step *step, const float *x, float *y, long rows, int thread, team *team) {
    if (step->table.type == BYTES)
        dot(step, x, y, rows, thread, team, BYTES);
    else if (step->table.type == PAIRS)
        dot(step, x, y, rows, thread, team, PAIRS);
    else
        dot(step, x, y, rows, thread, team, FLOATS);
}

/* y = norm(x), which may be the same */
static inline void normalize(const float *x, float *y, norm norm, long width, float eps) {
    float mean = 0.0f, square = 0.0f;
#pragma omp simd reduction(+ : mean)
    for (long i = 0; i < width; i++) mean += x[i];
    mean /= width;
#pragma omp simd reduction(+ : square)
    for (long i = 0; i < width; i++) square += (x[i] - mean) * (x[i] - mean);
    float rate = 1.0f / sqrtf(square / width + eps);
    if (norm.shift)
        for (long i = 0; i < width; i++) y[i] = (x[i] - mean) * rate * norm.weight[i] + norm.shift[i];
    else
        for (long i = 0; i < width; i++) y[i] = (x[i] - mean) * rate * norm.weight[i];
}

/* ---- attention ----------------------------------------------------------------------------------------------------- */

static inline float highest(const float *restrict x, long n, float most) {
#pragma omp simd reduction(max : most)
    for (long j = 0; j < n; j++) most = most > x[j] ? most : x[j];
    return most;
}

/* x = exp(scale (x - most)), and their sum */
static inline float exponentials(float *restrict x, long n, float most, float scale) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (long j = 0; j < n; j++) {
        x[j] = exponential(scale * (x[j] - most));
        sum += x[j];
    }
    return sum;
}

/* (x, y) -> (x cos - y sin, y cos + x sin) for the two halves of a head */
static inline void rotate(const float *restrict x, float *restrict y, const float *restrict cosine,
                          const float *restrict sine, long half) {
    for (long i = 0; i < half; i++) y[i] = x[i] * cosine[i] - x[half + i] * sine[i];
    for (long i = 0; i < half; i++) y[half + i] = x[half + i] * cosine[i] + x[i] * sine[i];
}

#if WIDE == 16
#define LANES(F) F(0), F(1), F(2), F(3), F(4), F(5), F(6), F(7), F(8), F(9), F(10), F(11), F(12), F(13), F(14), F(15)
#elif WIDE == 8
#define LANES(F) F(0), F(1), F(2), F(3), F(4), F(5), F(6), F(7)
#else
#define LANES(F) F(0), F(1), F(2), F(3)
#endif

/* Exchange what lies off the diagonal in each square of 2 D rows and lanes. */
#define EXCHANGE(D)                                                                                                    \
    UNROLLED for (int i = 0; i < WIDE; i++) if (!(i & D)) {                                                            \
        lanes above = x[i], below = x[i + D];                                                                          \
        x[i] = SHUFFLE(counts, above, below, LANES(UPPER_##D));                                                    \
        x[i + D] = SHUFFLE(counts, above, below, LANES(LOWER_##D));                                                \
    }
#define UPPER(L, D) ((L) & (D) ? WIDE + (L) - (D) : (L))
#define LOWER(L, D) ((L) & (D) ? WIDE + (L) : (L) + (D))
#define UPPER_1(L) UPPER(L, 1)
#define UPPER_2(L) UPPER(L, 2)
#define UPPER_4(L) UPPER(L, 4)
#define UPPER_8(L) UPPER(L, 8)
#define LOWER_1(L) LOWER(L, 1)
#define LOWER_2(L) LOWER(L, 2)
#define LOWER_4(L) LOWER(L, 4)
#define LOWER_8(L) LOWER(L, 8)

/* keys (size, wide) = k (n, size of stride k_step) with its rows as columns, and zeros in the columns behind them */
static void transpose(const float *k, long k_step, float *keys, long n, long size, long wide) {
    for (long j = 0; j < wide; j += WIDE)
        for (long i = 0; i < size; i += WIDE)
            if (i + WIDE <= size) {
                lanes x[WIDE];
                UNROLLED for (int row = 0; row < WIDE; row++) x[row] = j + row < n ? load(k + (j + row) * k_step + i) : (lanes){0};
                EXCHANGE(1) EXCHANGE(2)
#if WIDE > 4
                EXCHANGE(4)
#endif
#if WIDE > 8
                EXCHANGE(8)
#endif
                UNROLLED for (int row = 0; row < WIDE; row++) store(keys + (i + row) * wide + j, x[row]);
            } else
                for (long row = j; row < j + WIDE; row++)
                    for (long d = i; d < size; d++) keys[d * wide + row] = row < n ? k[row * k_step + d] : 0.0f;
}

/* The floats that a thread needs for `attend`. */
static long attention_room(long size, long longest) {
    long wide = up_to_columns(longest), width = up_to_columns(size);
    return MOST * (size + wide + width) + longest * size + wide * size;
}

/* y = softmax(q k^T / sqrt(size)) v within each row of tokens. kv (tokens, 2 hidden) has keys and behind them values, and
   room for COLUMNS floats behind its end. q (tokens, hidden) and y alike, or with `one` a row for the first token of each
   row.

   In a windowed layer a token reads keys that are `reach` tokens away at most, and the first `globals` tokens of its row;
   those read all. Then scores are computed of the columns that some query of a tile reads alone. */
static void attend(const batch *b, const float *q, const float *kv, float *y, int one, int windowed, float *room,
                   int thread, team *team) {
    const network *net = b->net;
    long heads = net->heads, hidden = net->hidden, size = hidden / heads, width = up_to_columns(size);
    long reach = windowed ? net->reach : -1, globals = net->globals;
    const float *cosine = net->cosine[windowed], *sine = net->sine[windowed];
    float scale = 1.0f / sqrtf(size);
    for (long part = thread; part < b->rows * heads; part += team->threads) {
        long r = part / heads, a = part % heads, from = b->starts[r], n = b->starts[r + 1] - from;
        if (one && reach >= 0 && !globals && n > reach + 1) n = reach + 1;
        long wide = up_to_columns(n);
        float *queries = room, *scores = queries + MOST * size, *out = scores + MOST * wide;
        float *rotated = out + MOST * width, *keys = rotated + n * size;
        const float *k = kv + from * 2 * hidden + a * size, *values = k + hidden;
        if (cosine)
            for (long j = 0; j < n; j++)
                rotate(k + j * 2 * hidden, rotated + j * size, cosine + j * size, sine + j * size, size / 2);
        transpose(cosine ? rotated : k, cosine ? size : 2 * hidden, keys, n, size, wide);
        long asked = one ? 1 : n, groups = (asked + MOST - 1) / MOST;
        for (long group = 0; group < groups; group++) {
            long first = asked * group / groups, count = asked * (group + 1) / groups - first;
            const float *x = q + (one ? r : from + first) * hidden + a * size;
            if (cosine)
                for (long i = 0; i < count; i++)
                    rotate(x + i * hidden, queries + i * size, cosine + (first + i) * size, sine + (first + i) * size,
                           size / 2);
            /* The columns that are read: those in front, of global tokens, and those from low to high. */
            long front = 0, low = 0, high = wide;
            if (reach >= 0 && first >= globals) {
                low = first > reach ? (first - reach) / COLUMNS * COLUMNS : 0;
                high = up_to_columns(least(first + count + reach, n));
                front = least(up_to_columns(globals), low);
            }
            for (long j = front ? 0 : low; j < high; j = j + COLUMNS == front ? low : j + COLUMNS)
                product(count, cosine ? queries : x, cosine ? size : hidden, keys + j, wide, PANEL, size, scores + j, wide, 0,
                        0);
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
                sum = exponentials(s, front, most, scale) + exponentials(s + low, high - low, most, scale);
                float rate = 1.0f / sum;
                for (long j = 0; j < front; j++) s[j] *= rate;
                for (long j = low; j < high; j++) s[j] *= rate;
            }
            float *to = y + (one ? r : from + first) * hidden + a * size;
            int whole = width == size; /* no tile is wider than the head */
            float *place = whole ? to : out;
            long step = whole ? hidden : width;
            for (long d = 0; d < width; d += COLUMNS) {
                if (front) product(count, scores, wide, values + d, 2 * hidden, PANEL, front, place + d, step, 0, 0);
                product(count, scores + low, wide, values + low * 2 * hidden + d, 2 * hidden, PANEL,
                        least(high, n) - low, place + d, step, front > 0, 0);
            }
            if (!whole)
                for (long i = 0; i < count; i++) memcpy(to + i * hidden, out + i * width, size * sizeof(float));
        }
    }
}

/* ---- the stages ---------------------------------------------------------------------------------------------------- */

typedef struct {
    float *state, *read, *x, *q, *kv, *y, *in, *act, *each;
    void *held;
} rooms;

/* The floats of all rooms, and where they are. */
static long lay_out(const batch *b, long threads, rooms *rooms) {
    const network *net = b->net;
    long tokens = b->tokens, hidden = net->hidden, inner = net->inner, wide = net->gated ? 2 * inner : inner;
    long widest = most(hidden, inner), read = most(hidden, net->embedding), at = 0, each = attention_room(hidden / net->heads, b->longest);
    float *room = b->room;
    for (long number = 0; number + 1 < net->steps; number++) { /* a head goes from `read` to `in` and back */
        read = most(read, net->head[number].map.out);
        wide = most(wide, net->head[number].map.out);
    }
#define ROOM(NAME, FLOATS_OF)                                                                                          \
    rooms->NAME = room + at;                                                                                           \
    at += ((FLOATS_OF) + 15) / 16 * 16;
    ROOM(state, b->state ? 0 : tokens * hidden)
    ROOM(read, tokens * read)
    ROOM(x, tokens * hidden)
    ROOM(q, tokens * hidden)
    ROOM(kv, 2 * tokens * hidden + COLUMNS)
    ROOM(y, tokens * hidden)
    ROOM(in, tokens * wide)
    ROOM(act, net->gated ? tokens * inner : 0)
    ROOM(each, threads * ((each + 15) / 16 * 16))
    rooms->held = room + at;
    at += held_bytes(tokens, widest, net->type) / 4 + 16;
    if (!net->gated) rooms->act = rooms->in;
    if (b->state) rooms->state = b->state;
    return at;
#undef ROOM
}

static void embed(const batch *b, const rooms *rooms, int thread, team *team) {
    const network *net = b->net;
    long width = net->embedding, hidden = net->hidden;
    int maps = net->project.panels != 0;
    float *to = maps ? rooms->read : rooms->state;
    for (long r = b->rows * thread / team->threads; r < b->rows * (thread + 1) / team->threads; r++)
        for (long token = b->starts[r]; token < b->starts[r + 1]; token++) {
            float *y = to + token * width;
            read_row(&net->words, b->ids[token], y, width);
            if (net->positions) {
                const float *position = net->positions + (net->offset + token - b->starts[r]) * width;
                for (long i = 0; i < width; i++) y[i] += position[i];
            }
            if (net->types) {
                const float *kind = net->types + (b->kinds ? b->kinds[token] : 0) * width;
                for (long i = 0; i < width; i++) y[i] += kind[i];
            }
            if (net->embedded.weight && !net->norm_after) normalize(y, y, net->embedded, width, net->eps);
        }
    barrier(team);
    if (maps) {
        multiply(&net->project, rooms->read, 0, rooms->state, hidden, b->tokens, NONE, FLOATS, thread, team);
        barrier(team);
    }
    if (net->norm_after)
        ROWS_OF(b->tokens) normalize(rooms->state + row * hidden, rooms->state + row * hidden, net->embedded, hidden, net->eps);
}

/* The state of `tokens` becomes that after the layer; with `one` of the first token of each row alone, (rows, hidden). No
   thread reads the rows of another before and after. */
static void apply_layer(const batch *b, long number, int one, const rooms *rooms, int thread, team *team) {
    const network *net = b->net;
    const layer *layer = net->stack[number];
    long hidden = net->hidden, inner = net->inner, tokens = b->tokens, count = one ? b->rows : tokens;
    int type = (int)net->type, pre = (int)net->pre, norms = pre && (number > 0 || net->first_norm);
    float eps = net->eps, *state = rooms->state, *read = norms ? rooms->read : state, *q = rooms->q, *x = state;
    void *held = rooms->held;

    ROWS_OF(tokens) {
        if (norms) normalize(state + row * hidden, read + row * hidden, layer->attention, hidden, eps);
        narrow_row(read + row * hidden, held, row, tokens, hidden, type);
    }
    barrier(team);
    multiply(&layer->kv, read, held, rooms->kv, 2 * hidden, tokens, NONE, type, thread, team);
    if (one) { /* queries of the first tokens, whose state goes on alone */
        barrier(team);
        x = rooms->x;
        ROWS_OF(count) {
            memcpy(x + row * hidden, state + b->starts[row] * hidden, hidden * sizeof(float));
            memcpy(rooms->y + row * hidden, read + b->starts[row] * hidden, hidden * sizeof(float));
            narrow_row(rooms->y + row * hidden, held, row, count, hidden, type);
        }
        barrier(team);
        read = rooms->y;
    }
    multiply(&layer->q, read, held, q, hidden, count, NONE, type, thread, team);
    barrier(team);
    float *y = one ? rooms->read : rooms->y; /* queries were read from rooms->y */
    attend(b, q, rooms->kv, y, one, net->windowed[number],
           rooms->each + thread * ((attention_room(hidden / net->heads, b->longest) + 15) / 16 * 16), thread, team);
    barrier(team);
    if (type != FLOATS) {
        ROWS_OF(count) narrow_row(y + row * hidden, held, row, count, hidden, type);
        barrier(team);
    }
    multiply(&layer->attended, y, held, q, hidden, count, NONE, type, thread, team);
    barrier(team);
    read = pre ? rooms->y : x;
    ROWS_OF(count) {
        float *sum = x + row * hidden, *to = read + row * hidden;
        for (long i = 0; i < hidden; i++) sum[i] += q[row * hidden + i];
        normalize(sum, to, pre ? layer->feedforward : layer->attention, hidden, eps);
        narrow_row(to, held, row, count, hidden, type);
    }
    barrier(team);
    multiply(&layer->inner, read, held, rooms->in, layer->inner.out, count, net->gated ? NONE : net->kind, type, thread,
             team);
    barrier(team);
    if (net->gated || type != FLOATS) {
        ROWS_OF(count) {
            float *act = rooms->act + row * inner, *half = rooms->in + row * 2 * inner;
            if (net->gated) {
                for (long i = 0; i + COLUMNS <= inner; i += COLUMNS) FINISHES[net->kind](half + i, COLUMNS, 1, ZEROS);
                if (inner % COLUMNS) {
                    float tail[COLUMNS] = {0};
                    long at = inner / COLUMNS * COLUMNS, rest = inner - at;
                    memcpy(tail, half + at, rest * sizeof(float));
                    FINISHES[net->kind](tail, COLUMNS, 1, ZEROS);
                    memcpy(half + at, tail, rest * sizeof(float));
                }
                for (long i = 0; i < inner; i++) act[i] = half[i] * half[inner + i];
            }
            narrow_row(act, held, row, count, inner, type);
        }
        barrier(team);
    }
    multiply(&layer->output, rooms->act, held, q, hidden, count, NONE, type, thread, team);
    barrier(team);
    ROWS_OF(count) {
        float *to = state + row * hidden, *from = x + row * hidden;
        for (long i = 0; i < hidden; i++) to[i] = from[i] + q[row * hidden + i];
        if (!pre) normalize(to, to, layer->feedforward, hidden, eps);
    }
}

/* What the head gives of the state: (rows or tokens that it reads, numbers of its last step). The state stays. */
static void read_out(const batch *b, int one, const rooms *rooms, int thread, team *team) {
    const network *net = b->net;
    long hidden = net->hidden, reads = net->reads;
    long count = reads == TOKENS ? b->tokens : reads == CHOSEN ? b->count : b->rows;
    float *from = net->steps ? rooms->read : b->result;
    barrier(team);
    ROWS_OF(count) {
        float *to = from + row * hidden;
        if (reads == MEAN || reads == UNIT) {
            long first = b->starts[row], n = b->starts[row + 1] - first;
            float other[hidden];
            memset(to, 0, hidden * sizeof(float));
            for (long token = first; token < first + n; token++) {
                const float *state = rooms->state + token * hidden;
                if (net->last.weight) normalize(state, other, net->last, hidden, net->eps);
                const float *restrict added = net->last.weight ? other : state;
                for (long i = 0; i < hidden; i++) to[i] += added[i];
            }
            for (long i = 0; i < hidden; i++) to[i] /= n;
            if (reads == UNIT) {
                float square = 0.0f;
#pragma omp simd reduction(+ : square)
                for (long i = 0; i < hidden; i++) square += to[i] * to[i];
                float scale = 1.0f / fmaxf(sqrtf(square), 1e-12f);
                for (long i = 0; i < hidden; i++) to[i] *= scale;
            }
            continue;
        }
        long token = reads == TOKENS || one ? row : reads == CHOSEN ? b->chosen[row] : b->starts[row];
        memcpy(to, rooms->state + token * hidden, hidden * sizeof(float));
        if (net->last.weight) normalize(to, to, net->last, hidden, net->eps);
    }
    for (long number = 0; number < net->steps; number++) {
        const step *step = net->head + number;
        long out = step->map.out;
        float *to = number + 1 == net->steps ? b->result : from == rooms->read ? rooms->in : rooms->read;
        barrier(team);
        if (step->table.rows)
            dot_products(step, from, to, count, thread, team);
        else
            multiply(&step->map, from, 0, to, out, count, (int)step->activation, FLOATS, thread, team);
        if (step->norm.weight) {
            barrier(team);
            ROWS_OF(count) normalize(to + row * out, to + row * out, step->norm, out, net->eps);
        }
        from = to;
    }
}

static void compute(void *job, int thread, team *team) {
    const batch *b = job;
    const network *net = b->net;
    rooms rooms;
    lay_out(b, team->threads, &rooms);
    if (b->first < 0) embed(b, &rooms, thread, team);
    int one = 0;
    for (long number = b->first < 0 ? 0 : b->first; number < b->end; number++) {
        one = b->result && net->reads == FIRST && number == net->layers - 1; /* all that is read of the last layer */
        apply_layer(b, number, one, &rooms, thread, team);
    }
    if (b->result) read_out(b, one, &rooms, thread, team);
}

/* In bulk each thread computes rows of so many tokens alone, because threads of one pass wait for each other. What lies
   between two products then stays in its cache. */
#define ALONE 512
/* Multiplications of a pass that are worth a thread of its own: it takes some 50 microseconds to wake. */
#define WORTH 12e6

typedef struct {
    const batch *whole;
    long most, begin, each; /* tokens of a turn, or one row; floats of a thread's room before those of `lay_out`, and all */
    atomic_long taken;
} bulk;

static void compute_alone(void *job, int thread, team *all) {
    bulk *bulk = job;
    const batch *whole = bulk->whole;
    const network *net = whole->net;
    long width = net->steps ? net->head[net->steps - 1].map.out : net->hidden;
    const int64_t *starts = whole->starts;
    float *room = whole->room + thread * bulk->each;
    team alone = {.threads = 1};
    for (long first = atomic_load(&bulk->taken); first < whole->rows;) {
        long end = first + 1, base = starts[first];
        while (end < whole->rows && starts[end + 1] - base <= bulk->most) end++;
        if (!atomic_compare_exchange_strong(&bulk->taken, &first, end)) continue; /* others took it: `first` is theirs */
        batch part = *whole;
        int64_t *own = (int64_t *)room;
        for (long r = first; r <= end; r++) own[r - first] = starts[r] - base;
        part.starts = own;
        part.rows = end - first;
        part.tokens = own[part.rows];
        part.ids = whole->ids + base;
        part.kinds = whole->kinds ? whole->kinds + base : 0;
        part.state = whole->state ? whole->state + base * net->hidden : 0;
        part.result = whole->result + (net->reads == TOKENS ? base : first) * width;
        part.room = room + bulk->begin;
        compute(&part, 0, &alone);
        first = atomic_load(&bulk->taken);
    }
}

enum { EMPTY_ROW = -1, LONG_ROW = -2, NO_TOKEN = -3, NO_KIND = -4 }; /* network.py has a sentence for each */

/* Compute a batch and return 0; or why not, a negative number; or the floats that `room` must have. */
long answer(batch *b, long threads) {
    const network *net = b->net;
    b->longest = 0;
    for (long r = 0; r < b->rows; r++) {
        long length = b->starts[r + 1] - b->starts[r];
        if (length <= 0) return EMPTY_ROW;
        b->longest = most(b->longest, length);
    }
    if (b->longest > net->positions_of_row) return LONG_ROW;
    for (long token = 0; token < b->tokens && b->first < 0; token++) {
        if ((uint64_t)(int64_t)b->ids[token] >= (uint64_t)net->vocabulary) return b->longest = b->ids[token], NO_TOKEN;
        if (b->kinds && (uint64_t)(int64_t)b->kinds[token] >= (uint64_t)net->kinds)
            return b->longest = b->kinds[token], NO_KIND;
    }
    rooms rooms;
    if (b->tokens > ALONE && b->rows > 1 && net->reads != CHOSEN) {
        long turns = (b->tokens + ALONE * threads - 1) / (ALONE * threads); /* so that all threads have as much to do */
        bulk bulk = {.whole = b, .most = most(b->longest, b->tokens / (turns * threads) + 1)};
        batch part = *b;
        part.tokens = bulk.most;
        bulk.begin = (2 * (bulk.most + 1) + 15) / 16 * 16; /* where its rows begin, in twice the bytes of floats */
        bulk.each = bulk.begin + (lay_out(&part, 1, &rooms) + 15) / 16 * 16;
        if (b->space < threads * bulk.each) return threads * bulk.each;
        run(compute_alone, &bulk, threads);
        return 0;
    }
    double weights = net->layers * net->hidden * (4.0 * net->hidden + (net->gated ? 3.0 : 2.0) * net->inner);
    threads = least(threads, 1 + (long)(b->tokens * weights / WORTH));
    long space = lay_out(b, threads, &rooms);
    if (b->space < space) return space;
    run(compute, b, threads);
    return 0;
}

/* One product, to measure it: y (rows, out) = x (rows, in) w^T + bias, with room for what it holds. */
typedef struct {
    const map *map;
    const float *x;
    float *y;
    void *held;
    int64_t rows, type;
} single;

static void compute_single(void *job, int thread, team *team) {
    const single *s = job;
    const map *map = s->map;
    ROWS_OF(s->rows) narrow_row(s->x + row * map->in, s->held, row, s->rows, map->in, (int)s->type);
    barrier(team);
    multiply(map, s->x, s->held, s->y, map->out, s->rows, NONE, (int)s->type, thread, team);
}

void multiply_once(const map *map, const float *x, float *y, void *held, long rows, long type, long threads) {
    single s = {map, x, y, held, rows, type};
    run(compute_single, &s, threads);
}
