#include "trireme/base/machine/memory_blocks.h"

#include <algorithm>
#include <new>
#include <utility>

namespace trireme {
namespace {

constexpr size_t kMostNames = 10'000;
// A snapshot for each such part more. Memory grows from nothing until the first step has ended.
constexpr int64_t kFirstGrowth = 8;
constexpr int64_t kGrowth = 100;

struct RunningOperation {
  const char* outermost = nullptr;
  int64_t depth = 0;
};
thread_local RunningOperation running;
thread_local const std::string* running_unit = nullptr;

}  // namespace

void enter_memory_operation(const char* name) {
  if (running.depth++ == 0) running.outermost = name;
}

void leave_memory_operation() {
  if (running.depth > 0) --running.depth;
}

MemoryUnit::MemoryUnit(const std::string& name) : outer_(std::exchange(running_unit, &name)) {}
MemoryUnit::~MemoryUnit() { running_unit = outer_; }

void MemoryBlocks::set_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  has_made_step_ = has_made_step_ || (step_ != 0 && step != step_);
  step_ = step;
}

const std::string* MemoryBlocks::kept(std::string_view name) {
  auto found = names_.find(name);
  if (found == names_.end()) {
    found = names_.emplace(names_.size() < kMostNames ? name : std::string_view("other")).first;
  }
  return &*found;
}

// No allocation fails for the lack of memory for its note: such a block stays unknown.
uint64_t MemoryBlocks::add(MemoryKind kind, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  try {
    const char* const operation = running.depth > 0 ? running.outermost : "";
    blocks_.emplace(++last_number_,
                    Block{bytes, kind, kept(operation), kept(running_unit ? *running_unit : "")});
  } catch (const std::bad_alloc&) {
    return 0;
  }
  kinds_[kind] += bytes;
  total_ += bytes;
  if (total_ > taken_ + taken_ / (has_made_step_ ? kGrowth : kFirstGrowth))
    take(/*failed_bytes=*/0);
  return last_number_;
}

void MemoryBlocks::remove(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(number);
  if (found == blocks_.end()) return;
  kinds_[found->second.kind] -= found->second.bytes;
  total_ -= found->second.bytes;
  blocks_.erase(found);
}

void MemoryBlocks::fail(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  take(bytes);
}

// A failure stays: what is allocated while the run ends is of no interest. Without memory for a
// snapshot the one before stays.
void MemoryBlocks::take(int64_t failed_bytes) {
  if (snapshot_.failed_bytes > 0 && failed_bytes == 0) return;
  try {
    std::vector<const Block*> order;
    order.reserve(blocks_.size());
    for (const auto& [number, block] : blocks_) order.push_back(&block);
    const size_t count = std::min(kMostBlocks, order.size());
    std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(count),
                              std::ranges::greater(), &Block::bytes);
    MemorySnapshot taken = {.step = step_, .kinds = kinds_, .failed_bytes = failed_bytes};
    for (size_t i = 0; i < count; ++i) {
      taken.largest.push_back(
          {order[i]->bytes, order[i]->kind, *order[i]->operation, *order[i]->unit});
    }
    snapshot_ = std::move(taken);
  } catch (const std::bad_alloc&) {
    return;
  }
  taken_ = total_;
  if (on_snapshot_) on_snapshot_(snapshot_);
}

MemorySnapshot MemoryBlocks::snapshot() const {
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

}  // namespace trireme
