#include "trireme/comm/objects.h"

#include <iterator>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

// A length comes before its text, so that the buffers fit. A damaged one would be allocated; no
// text that ranks exchange comes near this.
constexpr int64_t kMostBytes = int64_t{1} << 30;

// Checks a length announced by `rank` before memory is allocated for it.
void check_length(Communicator& group, int rank, int64_t length) {
  if (length >= 0 && length <= kMostBytes) return;
  const std::string reason =
      concat("rank ", rank, " of group ", group.name(), " announces a text of ", length,
             " bytes, expected at most ", kMostBytes, "; its memory or program is damaged");
  // The others are on their way into the next collective.
  group.abort(reason);
  throw CommError(reason);
}

// A view of `text` as bytes.
at::Tensor bytes_of(std::string& text) {
  return at::from_blob(text.data(), {static_cast<int64_t>(text.size())}, at::kByte);
}

}  // namespace

std::vector<int64_t> all_gather_numbers(Communicator& group, int64_t number) {
  std::vector<int64_t> numbers(group.size());
  std::vector<at::Tensor> outputs;
  for (int64_t& other : numbers) outputs.push_back(at::from_blob(&other, {1}, at::kLong));
  group.all_gather(outputs, at::from_blob(&number, {1}, at::kLong))->wait();
  return numbers;
}

namespace {

std::vector<int64_t> all_gather_lengths(Communicator& group, std::string_view text) {
  std::vector<int64_t> lengths = all_gather_numbers(group, std::ssize(text));
  for (int rank = 0; rank < group.size(); ++rank) check_length(group, rank, lengths[rank]);
  return lengths;
}

}  // namespace

std::vector<std::string> all_gather_strings(Communicator& group, std::string_view text) {
  std::vector<std::string> texts;
  for (const int64_t length : all_gather_lengths(group, text)) texts.emplace_back(length, '\0');
  std::vector<at::Tensor> outputs;
  for (std::string& other : texts) outputs.push_back(bytes_of(other));
  std::string own(text);
  group.all_gather(outputs, bytes_of(own))->wait();
  return texts;
}

std::vector<std::string> gather_strings(Communicator& group, std::string_view text, int root) {
  const std::vector<int64_t> lengths = all_gather_lengths(group, text);
  std::vector<std::string> texts;
  std::vector<at::Tensor> outputs;
  if (group.rank() == root) {
    for (const int64_t length : lengths) texts.emplace_back(length, '\0');
    for (std::string& other : texts) outputs.push_back(bytes_of(other));
  }
  std::string own(text);
  group.gather(outputs, bytes_of(own), root)->wait();
  return texts;
}

std::string broadcast_string(Communicator& group, std::string text, int root) {
  at::Tensor length = at::tensor(std::vector<int64_t>{static_cast<int64_t>(text.size())});
  group.broadcast(length, root)->wait();
  const auto num_bytes = length.item<int64_t>();
  check_length(group, root, num_bytes);
  text.resize(static_cast<size_t>(num_bytes));
  group.broadcast(bytes_of(text), root)->wait();
  return text;
}

}  // namespace trireme::comm
