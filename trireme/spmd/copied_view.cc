#include "trireme/spmd/copied_view.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace trireme::spmd {
namespace {

// The number of copied views by the memory of their bases. A weak pointer keeps an address from
// being given to other memory.
class Counts {
 public:
  void add(const c10::StorageImpl* memory, int difference) {
    const std::lock_guard lock(mutex_);
    int& count = counts_[memory];
    count += difference;
    if (count == 0) counts_.erase(memory);
    is_empty_.store(counts_.empty(), std::memory_order_relaxed);
  }
  bool has(const c10::StorageImpl* memory) {
    if (is_empty_.load(std::memory_order_relaxed)) return false;
    const std::lock_guard lock(mutex_);
    return counts_.contains(memory);
  }

 private:
  std::atomic<bool> is_empty_{true};
  std::mutex mutex_;
  std::unordered_map<const c10::StorageImpl*, int> counts_;
};

Counts& counts() {
  static auto* const all = new Counts();  // tensors may outlive static objects
  return *all;
}

}  // namespace

CopiedView::CopiedView(const at::Tensor& base)
    : base_(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
          base.storage().unsafeGetStorageImpl())) {
  counts().add(base_._unsafe_get_target(), 1);
}

CopiedView::~CopiedView() { counts().add(base_._unsafe_get_target(), -1); }

bool CopiedView::has_base() const { return !base_.expired(); }

bool has_copied_views(const at::Tensor& block) {
  return counts().has(block.storage().unsafeGetStorageImpl());
}

}  // namespace trireme::spmd
