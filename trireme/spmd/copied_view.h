// Views whose block is a copy, because the view needs another split or order of elements than its
// base: a write to one of the two would not reach the other. They are known, so that such writes
// are refused.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::spmd {

// Lives as long as a copied view does.
class CopiedView {
 public:
  // base: the block that the view was made of
  explicit CopiedView(const at::Tensor& base);
  ~CopiedView();
  CopiedView(const CopiedView&) = delete;
  CopiedView& operator=(const CopiedView&) = delete;

  // Whether anything still has the base's memory.
  bool has_base() const;

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> base_;
};

// Whether a view of this block's memory lives that is a copy. Thread safe.
bool has_copied_views(const at::Tensor& block);

}  // namespace trireme::spmd
