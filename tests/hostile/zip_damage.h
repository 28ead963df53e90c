// Damage to the headers and the directory of a zip archive.
#pragma once

#include "tests/harness/zip.h"
#include "tests/hostile/mutation.h"

namespace trireme::hostile {

// Writes an edge number into a local header, an entry of the directory, or the archive's end.
inline void damage_zip(harness::Zip& zip, Random& random) {
  const size_t part = random.pick(random.one_in(3) ? zip.locals : zip.entries);
  const size_t begin = random.one_in(3) ? zip.end : part;
  put_edge(zip.bytes, begin + random.below(98), size_t{1} << random.below(4), random);
}

}  // namespace trireme::hostile
