#include "trireme/train/config/shares.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <system_error>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"

namespace trireme::train {
namespace {

using dataset::Shares;

constexpr uint64_t kMostBytes = uint64_t{16} << 20;
constexpr JsonLimits kLineLimits{.max_bytes = 1 << 20, .max_values = 1 << 17, .max_depth = 3};

int64_t sum_of(const Shares& shares) {
  return std::reduce(shares.micro_batches.begin(), shares.micro_batches.end());
}

Shares parse_line(std::string_view line, const std::string& source) {
  const nlohmann::json value = parse_json(line, source, kLineLimits);
  const JsonView root(value, source);
  Shares shares{.step = root.at("step").integer(1, kMaxSteps) - 1,
                .micro_batches = root.at("micro_batches").integers(0, kMaxBatch)};
  for (const auto& [name, member] : root.members()) {
    TRIREME_CHECK(name == "step" || name == "micro_batches", source, ": unknown key ",
                  in_quotes(name), "; expected step and micro_batches");
  }
  TRIREME_CHECK(sum_of(shares) > 0, source,
                ": micro_batches has no sample; expected a number above 0 for at least one rank");
  return shares;
}

// Whether the line may follow the one before it.
void check_next(const Shares& before, const Shares& shares, const std::string& source) {
  TRIREME_CHECK(shares.step > before.step, source, ": step ", shares.step + 1, " follows step ",
                before.step + 1, "; expected steps in ascending order");
  TRIREME_CHECK(shares.micro_batches.size() == before.micro_batches.size(), source,
                ": micro_batches has ", shares.micro_batches.size(), " ranks and the line before ",
                before.micro_batches.size(), "; expected as many in every line");
  TRIREME_CHECK(sum_of(shares) == sum_of(before), source, ": micro_batches sum to ", sum_of(shares),
                " and those of the line before to ", sum_of(before),
                "; expected the same sum in every line");
}

}  // namespace

std::vector<Shares> parse_shares(std::string_view text, const std::string& source) {
  std::vector<Shares> all;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty()) continue;
    const std::string where = concat(source, " line ", number);
    Shares shares = parse_line(line, where);
    if (all.empty()) {
      TRIREME_CHECK(shares.step == 0, where, ": step is ", shares.step + 1,
                    "; expected 1 in the first line");
    } else {
      check_next(all.back(), shares, where);
    }
    all.push_back(std::move(shares));
  }
  TRIREME_CHECK(!all.empty(), source,
                ": no shares; expected lines such as {\"step\": 1, \"micro_batches\": [3, 1]}");
  return all;
}

std::string to_text(std::span<const Shares> shares) {
  std::string text;
  for (const Shares& each : shares) {
    std::string sizes;
    for (const int64_t size : each.micro_batches) {
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
    }
    text +=
        "{\"step\": " + std::to_string(each.step + 1) + ", \"micro_batches\": [" + sizes + "]}\n";
  }
  return text;
}

std::vector<Shares> read_shares(const std::filesystem::path& path) {
  const std::string name = "train.shares " + shown(path.string(), kMaxWordBytes);
  std::error_code ignored;
  TRIREME_CHECK(std::filesystem::is_regular_file(path, ignored), name,
                std::filesystem::exists(path, ignored) ? " is not a file" : " does not exist",
                "; give the shares.jsonl of a run, or leave it out for equal shares");
  return parse_shares(read_file(path, kMostBytes), name);
}

int64_t forward_samples(std::span<const Shares> shares) { return sum_of(shares.front()); }

int64_t largest_share(std::span<const Shares> shares) {
  int64_t largest = 0;
  for (const Shares& each : shares) {
    largest = std::max(largest, std::ranges::max(each.micro_batches));
  }
  return largest;
}

std::vector<int64_t> shares_at(std::span<const Shares> shares, int64_t step) {
  return std::prev(std::ranges::upper_bound(shares, step, {}, &Shares::step))->micro_batches;
}

std::string describe_shares(std::span<const int64_t> micro_batches) {
  std::string text;
  for (const int64_t size : micro_batches) text += (text.empty() ? "" : "+") + std::to_string(size);
  return text;
}

std::string describe_shares(std::span<const Shares> shares, int64_t step) {
  return describe_shares(shares_at(shares, step));
}

std::vector<Shares> joined_shares(std::span<const Shares> before, std::span<const Shares> after,
                                  int64_t step) {
  std::vector<Shares> all;
  const bool are_alike = !before.empty() && forward_samples(before) == forward_samples(after) &&
                         before.front().micro_batches.size() == after.front().micro_batches.size();
  if (!are_alike || step == 0) return {after.begin(), after.end()};
  std::ranges::copy_if(before, std::back_inserter(all),
                       [step](const Shares& each) { return each.step < step; });
  if (std::vector<int64_t> now = shares_at(after, step); now != all.back().micro_batches) {
    all.push_back({step, std::move(now)});
  }
  std::ranges::copy_if(after, std::back_inserter(all),
                       [step](const Shares& each) { return each.step > step; });
  return all;
}

}  // namespace trireme::train
