// Compiles a hand-written loop once per x86-64 level; the loader chooses the best. The results must
// not depend on the level: no operations are contracted, and the source fixes the order of sums.
#pragma once

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TRIREME_MULTIVERSION \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TRIREME_MULTIVERSION
#endif

// For helpers of a multiversioned function: each of its versions must inline them.
#define TRIREME_INLINE inline __attribute__((always_inline))
