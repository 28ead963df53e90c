#include "trireme/train/task/data_identity.h"

#include <algorithm>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/comm/objects.h"

namespace trireme::train {
namespace {

constexpr int64_t kPlaces = 64;

// "index, tokens and tokenizer".
std::string names_of_parts(const DataIdentity& identity) {
  std::string text;
  size_t left = identity.checksums.size();
  for (const auto& [name, sum] : identity.checksums) {
    --left;
    text += name + (left > 1 ? ", " : left == 1 ? " and " : "");
  }
  return text;
}

}  // namespace

DataIdentity identify_samples(const dataset::Source& source) {
  std::string bytes;
  const int64_t places = std::min(kPlaces, source.size());
  for (int64_t place = 0; place < places; ++place) {
    // In this order of operations nothing overflows.
    const int64_t index = source.size() / places * place + source.size() % places * place / places;
    try {
      for (const auto& [name, tensor] : source.get(index, std::nullopt)) {
        const at::Tensor values = tensor.contiguous();
        bytes += name;
        bytes.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
      }
    } catch (const ConfigError&) {
      bytes += "unreadable";  // a run that comes to this sample decides what that means
    }
  }
  return {.checksums = {{"samples", checksum(std::as_bytes(std::span(bytes)))}},
          .counts = {{"num_samples", source.size()}}};
}

void add_part(DataIdentity& whole, const std::string& name, const DataIdentity& part) {
  for (const auto& [sum_name, sum] : part.checksums) {
    whole.checksums[name.empty() ? sum_name : concat(name, " ", sum_name)] = sum;
  }
  for (const auto& [count_name, count] : part.counts) whole.counts[count_name] += count;
}

DataIdentity parts_as_in(const DataIdentity& data, const DataIdentity& other) {
  const auto part_of = [](const std::string& name) {
    const size_t space = name.find(' ');
    return space == std::string::npos ? std::string() : name.substr(0, space);
  };
  std::set<std::string> parts;
  for (const auto& [name, sum] : other.checksums) parts.insert(part_of(name));
  DataIdentity found = data;
  std::erase_if(found.checksums,
                [&](const auto& each) { return !parts.contains(part_of(each.first)); });
  const bool is_one = std::ranges::all_of(
      data.checksums, [&](const auto& each) { return part_of(each.first).empty(); });
  if (!is_one) found.counts.clear();
  return found;
}

void require_same_data(const DataIdentity& mine, const std::string& name,
                       comm::Communicator& world) {
  std::string sums;
  for (const auto& [part, sum] : mine.checksums) sums += (sums.empty() ? "" : " ") + sum;
  const std::vector<std::string> all = comm::all_gather_strings(world, sums);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    TRIREME_CHECK(all[rank] == all[0], "the data ", name, " of rank ", rank,
                  " differs from that of rank 0: checksums of ", names_of_parts(mine), " are ",
                  all[rank], " and ", all[0], "; copy the same files to every host");
  }
}

std::string to_text(const DataIdentity& identity) {
  constexpr std::string_view kPrefix = "num_";
  std::string text;
  for (const auto& [name, count] : identity.counts) {
    const std::string noun = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
    text += concat(text.empty() ? "" : ", ", count, " ", noun);
  }
  return text;
}

}  // namespace trireme::train
