// Reads a source from front to back faster than its answers come: while the reader works, the next
// blocks are fetched. For sources that answer late, such as objects of stores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "trireme/base/file/byte_source.h"

namespace trireme {

struct ReadAheadOptions {
  // Of the source, what will be read. Nothing outside is fetched before it is asked for.
  uint64_t begin = 0;
  uint64_t end = std::numeric_limits<uint64_t>::max();
  uint64_t block_bytes = uint64_t{2} << 20;  // of one read of the source
  size_t num_ahead = 3;                      // blocks that are fetched beside the one in use
  size_t num_kept = 16;  // blocks in memory, so that several places may be read in turn
};

// The same bytes as `source`. A read that follows the one before it, or the first one, fetches the
// next blocks too. The destructor waits for those under way.
// Memory: num_kept * block_bytes
std::unique_ptr<ByteSource> read_ahead(std::shared_ptr<const ByteSource> source,
                                       const ReadAheadOptions& options = {});

}  // namespace trireme
