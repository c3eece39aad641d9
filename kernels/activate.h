/* Activations of a vector. The choice is made outside of the loops over vectors. Part of kernels.c. */

#ifndef ONNX_SUBGRAPH_ACTIVATE_H
#define ONNX_SUBGRAPH_ACTIVATE_H

#include "isa.h"
#include "vector.h"

/* activation must be a compile-time constant, so that only one branch remains. */
INLINE V activated(Activation activation, V v, V alpha) {
    switch (activation) {
    case RELU: return larger(all(0.0f), v); /* this order keeps NaN */
    case GELU: return gelu(v);
    case FAST_GELU: return fast_gelu(v);
    case SWISH: return v * sigmoid(alpha * v);
    case TANH: return tangent(v);
    case SIGMOID: return sigmoid(v);
    default: return v;
    }
}

/* Calls a function for each activation. Its first argument must be a compile-time constant. */
#define FOR_ACTIVATION(activation, function, ...) \
    switch (activation) { \
    case RELU: function(RELU, __VA_ARGS__); break; \
    case GELU: function(GELU, __VA_ARGS__); break; \
    case FAST_GELU: function(FAST_GELU, __VA_ARGS__); break; \
    case SWISH: function(SWISH, __VA_ARGS__); break; \
    case TANH: function(TANH, __VA_ARGS__); break; \
    case SIGMOID: function(SIGMOID, __VA_ARGS__); break; \
    default: function(IDENTITY, __VA_ARGS__); break; \
    }

#endif
