#include "trireme/spmd/graph/work_kind.h"

#include <algorithm>
#include <initializer_list>

namespace trireme::spmd {
namespace {

bool is_any_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [&](const char* each) {
    return name.compare(6, std::string::npos, each) == 0;  // behind "aten::"
  });
}

}  // namespace

WorkKind work_of(const std::string& name) {
  if (!name.starts_with("aten::")) return WorkKind::kElements;
  if (is_any_of(name, {"mm", "addmm", "bmm", "baddbmm", "mv", "dot"})) return WorkKind::kProduct;
  if (is_any_of(name, {"convolution"})) return WorkKind::kConvolution;
  if (is_any_of(name, {"convolution_backward"})) return WorkKind::kConvolutionBackward;
  if (is_any_of(name, {"embedding", "index_select", "gather"})) return WorkKind::kLookUp;
  if (name.starts_with("aten::_scaled_dot_product")) {
    return name.ends_with("_backward") ? WorkKind::kAttentionBackward : WorkKind::kAttention;
  }
  if (is_any_of(name,
                {"view", "_unsafe_view", "t", "transpose.int", "permute", "unsqueeze", "squeeze",
                 "squeeze.dim", "squeeze.dims", "expand", "detach", "alias", "slice.Tensor",
                 "select.int", "split.Tensor", "split_with_sizes", "empty_like", "unbind.int"})) {
    return WorkKind::kView;
  }
  return WorkKind::kElements;
}

}  // namespace trireme::spmd
