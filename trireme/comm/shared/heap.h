// Symmetric memory: a heap that every rank of the host has mapped. A tensor in it has a place that
// is the same number for every rank, so that peers read and write it where it lies. Ranks that are
// threads can address everything of each other; there every tensor is symmetric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/comm/shared/segment.h"

namespace trireme::comm {

// Thread safety: all methods, from any thread.
class Heap : public std::enable_shared_from_this<Heap> {
 public:
  // The place of ordinary memory.
  static constexpr uint64_t kOrdinary = ~uint64_t{0};

  // For threads: places are addresses.
  static std::shared_ptr<Heap> of_threads();
  // Memory of `segment` from `offset` on, `arena_bytes` for each rank; this rank allocates in its
  // own arena.
  static std::shared_ptr<Heap> in(std::shared_ptr<Segment> segment, size_t offset,
                                  size_t arena_bytes, int rank, int size);

  uint64_t place_of(const void* data, size_t num_bytes) const {
    const auto place = reinterpret_cast<uint64_t>(data) - base_;
    return place < extent_ && num_bytes <= extent_ - place ? place : kOrdinary;
  }
  // Whether what it tells the place of is freed by its owner, whoever else reads it.
  bool is_of_threads() const { return segment_ == nullptr; }
  // Where a place of this rank's own is.
  std::byte* at(uint64_t place) const { return reinterpret_cast<std::byte*>(base_ + place); }
  // Where a place that a peer tells is; null unless all `num_bytes` lie in one rank's arena, at an
  // address that `alignment` divides. A thread is believed: its places are addresses.
  std::byte* find(uint64_t place, uint64_t num_bytes, uint64_t alignment) const {
    if (place >= extent_) return nullptr;
    if (is_of_threads()) return at(place);
    const bool is_inside = num_bytes <= arena_bytes_ - place % arena_bytes_;
    return is_inside && (base_ + place) % alignment == 0 ? at(place) : nullptr;
  }

  // A tensor of this rank's arena; it holds the heap's memory as long as it lives.
  // Throws: ConfigError when the arena or the host's shared memory is full
  at::Tensor empty(at::IntArrayRef sizes, c10::ScalarType dtype);

 private:
  Heap() = default;
  uint64_t allocate(uint64_t num_bytes);
  void free(uint64_t place);

  uint64_t base_ = 0;
  uint64_t extent_ = kOrdinary;
  std::shared_ptr<Segment> segment_;  // null for threads
  uint64_t segment_offset_ = 0;
  uint64_t arena_bytes_ = 0;
  uint64_t arena_begin_ = 0;  // places of this rank's arena
  uint64_t arena_end_ = 0;

  std::mutex mutex_;
  uint64_t committed_ = 0;             // places below it have memory
  std::map<uint64_t, uint64_t> free_;  // place -> bytes, neighbours joined
  std::map<uint64_t, uint64_t> used_;
};

}  // namespace trireme::comm
