#include "trireme/cli/predict/batch_text.h"

#include <cstring>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

using nlohmann::json;

void append_values(const at::Tensor& tensor, std::string& text) {
  const at::Tensor values = tensor.contiguous();
  text.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
}

// Takes the values from the front of `rest`.
at::Tensor take_values(const json& description, std::string_view& rest) {
  const auto dtype = static_cast<at::ScalarType>(description.at(1).get<int>());
  const at::Tensor tensor = at::empty(description.at(2).get<std::vector<int64_t>>(), dtype);
  TRIREME_ASSERT(tensor.nbytes() <= rest.size(), "a batch of ", rest.size(), " bytes that has ",
                 tensor.nbytes());
  if (tensor.nbytes() > 0) std::memcpy(tensor.mutable_data_ptr(), rest.data(), tensor.nbytes());
  rest.remove_prefix(tensor.nbytes());
  return tensor;
}

}  // namespace

std::string to_text(std::span<const dataset::NamedTensors> batches) {
  json description = json::array();
  std::string values;
  for (const dataset::NamedTensors& batch : batches) {
    json& of_batch = description.emplace_back(json::array());
    for (const auto& [name, tensor] : batch) {
      of_batch.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.sizes().vec()});
      append_values(tensor, values);
    }
  }
  return description.dump() + '\n' + values;
}

std::vector<dataset::NamedTensors> from_text(std::string_view text) {
  const size_t end = text.find('\n');
  TRIREME_ASSERT(end != std::string_view::npos, "batches without a description");
  const json description = json::parse(text.substr(0, end));
  std::string_view rest = text.substr(end + 1);
  std::vector<dataset::NamedTensors> batches;
  for (const json& of_batch : description) {
    dataset::NamedTensors& batch = batches.emplace_back();
    for (const json& tensor : of_batch)
      batch.emplace_back(tensor.at(0).get<std::string>(), take_values(tensor, rest));
  }
  TRIREME_ASSERT(rest.empty(), rest.size(), " bytes behind the batches");
  return batches;
}

}  // namespace trireme::cli
