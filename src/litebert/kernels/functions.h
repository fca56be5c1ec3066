/* Numbers of bfloat16, and the functions of a network, with their slopes; compilers leave out what is not read. */

#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

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

#endif
