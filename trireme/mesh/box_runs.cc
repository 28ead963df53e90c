#include "trireme/mesh/box_runs.h"

#include "trireme/base/error.h"

namespace trireme::mesh {

BoxRuns::BoxRuns(const Box& box, std::span<const int64_t> whole_shape) {
  TRIREME_ASSERT(box.size.size() == whole_shape.size(), "a box of ", box.size.size(),
                 " dimensions in a tensor of ", whole_shape.size());
  int64_t stride = 1;
  bool is_run = true;  // dimensions from here on are whole, so that this one continues their run
  for (size_t d = whole_shape.size(); d-- > 0;) {
    start_ += box.offset[d] * stride;
    if (is_run) {
      length_ *= box.size[d];
      is_run = box.size[d] == whole_shape[d];
    } else {
      outer_.push_back({box.size[d], stride});
    }
    stride *= whole_shape[d];
  }
  length_ = std::max<int64_t>(length_, 1);  // a box without elements
}

int64_t BoxRuns::start_of(int64_t run) const {
  int64_t start = start_;
  for (const Dim& dim : outer_) {
    start += run % dim.size * dim.stride;
    run /= dim.size;
  }
  return start;
}

}  // namespace trireme::mesh
