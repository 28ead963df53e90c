#include "trireme/comm/objects.h"

#include <ATen/ATen.h>

namespace trireme::comm {
namespace {

// A view of `text` as bytes.
at::Tensor bytes_of(std::string& text) {
  return at::from_blob(text.data(), {static_cast<int64_t>(text.size())}, at::kByte);
}

}  // namespace

std::vector<std::string> all_gather_strings(Communicator& group, std::string_view text) {
  at::Tensor length = at::tensor(std::vector<int64_t>{static_cast<int64_t>(text.size())});
  std::vector<at::Tensor> lengths(group.size());
  for (at::Tensor& other : lengths) other = at::empty_like(length);
  group.all_gather(lengths, length)->wait();

  std::vector<std::string> texts;
  for (const at::Tensor& other : lengths) texts.emplace_back(other.item<int64_t>(), '\0');
  std::vector<at::Tensor> outputs;
  for (std::string& other : texts) outputs.push_back(bytes_of(other));
  std::string own(text);
  group.all_gather(outputs, bytes_of(own))->wait();
  return texts;
}

std::string broadcast_string(Communicator& group, std::string text, int root) {
  at::Tensor length = at::tensor(std::vector<int64_t>{static_cast<int64_t>(text.size())});
  group.broadcast(length, root)->wait();
  text.resize(length.item<int64_t>());
  group.broadcast(bytes_of(text), root)->wait();
  return text;
}

}  // namespace trireme::comm
