#include "trireme/train/learner/flat_weights.h"

#include <functional>
#include <numeric>

#include <ATen/ATen.h>

#include "trireme/parallel/learner/rounds.h"

namespace trireme::train {

std::map<std::string, int> fragments_by_name(const ParallelModel& model, const OuterConfig& outer) {
  const std::vector<std::string>& names = model.parameter_names();
  std::vector<int64_t> sizes;
  for (const std::string& name : names) {
    const std::vector<int64_t>& shape = model.layout_of(name).whole_shape();
    sizes.push_back(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
  }
  const std::vector<int> fragments =
      parallel::fragments_of(sizes, static_cast<int>(outer.fragments));
  std::map<std::string, int> by_name;
  for (size_t i = 0; i < names.size(); ++i) by_name[names[i]] = fragments[i];
  return by_name;
}

at::Tensor flattened(const std::vector<at::Tensor>& tensors, const at::TensorOptions& options) {
  std::vector<at::Tensor> flat = {at::empty({0}, options)};
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.detach().to(options).flatten());
  return at::cat(flat);
}

at::Tensor take(const at::Tensor& flat, const at::Tensor& like, int64_t& begin) {
  const at::Tensor part = flat.narrow(0, begin, like.numel()).view_as(like);
  begin += like.numel();
  return part;
}

}  // namespace trireme::train
