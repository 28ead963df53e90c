// XXH3, for this layer's sources: the library's, which takes the widest vectors that the processor
// has, or the header's, compiled for the oldest one.
#pragma once

#ifdef TRIREME_HAVE_XXHASH
#include <xxh_x86dispatch.h>
#else
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif
