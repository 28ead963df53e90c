// Which freed blocks a process keeps for its next allocations: so many that the blocks in use and
// those kept are never more than what was in use at once before. So a step reuses the pages of the
// step before, and the peak of these blocks is at most an eighth above what it would be if all were
// returned. What is kept is not there for other memory between two peaks.
//
// A block serves a size a little below its own, and is never cut. A C library's heap cuts its free
// blocks, so what a step needs again is no longer free in one piece, and the heap grows from
// microbatch to microbatch. This only decides; its user allocates and frees.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <vector>

namespace trireme {

// Thread safety: any thread may call any method.
class KeptBlocks {
 public:
  struct Block {
    void* data = nullptr;
    size_t bytes = 0;
  };

  // A kept block of at least `bytes`, and at most an eighth more, which is in use from now on.
  // Without one: `data` is null, and `bytes` are counted as in use; the caller first frees what
  // `evicted` returns, the blocks that were freed longest ago, then allocates.
  Block take(size_t bytes, std::vector<Block>& evicted);

  // The block is no longer in use, and kept.
  void keep(Block block);

  // What take() counted could not be allocated.
  void forget(size_t bytes);

  // All kept blocks, for the caller to free.
  std::vector<Block> release_all();

  size_t kept_bytes() const;

 private:
  using Freed = std::list<Block>;  // in the order in which they were freed

  Block remove(std::multimap<size_t, Freed::iterator>::iterator found);

  mutable std::mutex mutex_;
  size_t in_use_ = 0, kept_ = 0, most_in_use_ = 0;  // bytes
  Freed freed_;
  std::multimap<size_t, Freed::iterator> by_size_;
};

}  // namespace trireme
