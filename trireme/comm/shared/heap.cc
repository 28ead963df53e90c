#include "trireme/comm/shared/heap.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/memory_ledger.h"
#include "trireme/base/numbers.h"
#include "trireme/base/words.h"

namespace trireme::comm {
namespace {

// A cache line, so that ranks that write neighbouring tensors share none.
constexpr uint64_t kAlignment = 64;
constexpr uint64_t kCommitBytes = 2 << 20;     // a huge page at a time
constexpr uint64_t kMost = uint64_t{1} << 62;  // beyond any heap; the sum of two does not overflow

}  // namespace

std::shared_ptr<Heap> Heap::of_threads() { return std::shared_ptr<Heap>(new Heap()); }

std::shared_ptr<Heap> Heap::in(std::shared_ptr<Segment> segment, size_t offset, size_t arena_bytes,
                               int rank, int size) {
  auto heap = std::shared_ptr<Heap>(new Heap());
  heap->base_ = reinterpret_cast<uint64_t>(segment->data()) + offset;
  heap->extent_ = arena_bytes * static_cast<uint64_t>(size);
  heap->segment_ = std::move(segment);
  heap->segment_offset_ = offset;
  heap->arena_bytes_ = arena_bytes;
  heap->arena_begin_ = arena_bytes * static_cast<uint64_t>(rank);
  heap->arena_end_ = heap->arena_begin_ + arena_bytes;
  heap->committed_ = heap->arena_begin_;
  if (arena_bytes > 0) heap->free_[heap->arena_begin_] = arena_bytes;
  return heap;
}

at::Tensor Heap::empty(at::IntArrayRef sizes, c10::ScalarType dtype) {
  if (segment_ == nullptr) return at::empty(sizes, dtype);
  uint64_t num_bytes = c10::elementSize(dtype);
  bool is_countable = true;
  for (const int64_t size : sizes) {
    TRIREME_CHECK(size >= 0, "symmetric tensor: got a size of ", size, ", expected 0 or more");
    is_countable &= !__builtin_mul_overflow(num_bytes, static_cast<uint64_t>(size), &num_bytes);
  }
  // What cannot be counted is too large, which allocate() says in its usual words.
  const uint64_t place = allocate(is_countable ? num_bytes : ~uint64_t{0});
  // The deleter's copy keeps the mapping alive, because a tensor may outlive every group.
  auto charge = std::make_shared<MemoryCharge>(is_countable ? static_cast<int64_t>(num_bytes) : 0);
  const auto give_back = [heap = shared_from_this(), place,
                          charge = std::move(charge)](void*) mutable {
    heap->free(place);
    charge.reset();
  };
  return at::from_blob(at(place), sizes, give_back, at::TensorOptions().dtype(dtype));
}

// Best fit.
uint64_t Heap::allocate(uint64_t num_bytes) {
  const uint64_t wanted = round_up(std::clamp<uint64_t>(num_bytes, 1, kMost), kAlignment);
  const std::lock_guard lock(mutex_);
  auto best = free_.end();
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    const bool fits = block->second >= wanted;
    if (fits && (best == free_.end() || block->second < best->second)) best = block;
  }
  TRIREME_CHECK(best != free_.end(), "symmetric memory is full: a tensor of ", num_bytes,
                " bytes does not fit into this rank's heap of ", arena_end_ - arena_begin_,
                "; raise parallel.heap_bytes (GroupOptions::heap_bytes), or free tensors");
  const auto [place, size] = *best;
  const uint64_t end = std::min(round_up(place + wanted, kCommitBytes), arena_end_);
  // Before the block is taken: when this throws, nothing has changed.
  if (end > committed_) {
    segment_->commit(segment_offset_ + committed_, end - committed_);
    committed_ = end;
  }
  free_.erase(best);
  if (size > wanted) free_[place + wanted] = size - wanted;
  used_[place] = wanted;
  return place;
}

void Heap::free(uint64_t place) {
  const std::lock_guard lock(mutex_);
  const auto used = used_.find(place);
  uint64_t size = used->second;
  used_.erase(used);
  auto next = free_.lower_bound(place);
  if (next != free_.end() && place + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == place) {
      previous->second += size;
      return;
    }
  }
  free_[place] = size;
}

std::string text_of_peer(std::span<const char> shared) {
  // Copy first, so that the text that is checked is the text that is returned.
  std::string text(shared.begin(), shared.end());
  text.resize(strnlen(text.c_str(), text.size()));
  return shown(text, text.size());
}

std::span<std::byte> span_of_peer(Exchange& exchange, const Heap& heap, const PeerBytes& bytes,
                                  const char* operation) {
  std::byte* const data = heap.find(bytes.place, bytes.num_bytes, bytes.alignment);
  if (data == nullptr) [[unlikely]] {
    const std::string reason = concat(
        exchange.title_of(bytes.peer), " says that its ", bytes.num_bytes, " bytes lie at ",
        bytes.place, " in symmetric memory, where they cannot; its memory or program is damaged");
    if (operation == nullptr) exchange.fail(reason);
    exchange.fail(operation, reason);
  }
  return {data, bytes.num_bytes};
}

}  // namespace trireme::comm
