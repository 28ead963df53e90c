// Compilation of a hand-written loop once per x86-64 level; the best is chosen at load time. Values
// must not depend on it: nothing is contracted, and sums have a fixed order in the source.
#pragma once

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TRIREME_MULTIVERSION \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TRIREME_MULTIVERSION
#endif

// The body of a multiversioned function, shared by its dtypes: must be part of each version.
#define TRIREME_INLINE inline __attribute__((always_inline))
