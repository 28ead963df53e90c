// The data ranks' shares of a batch, as text: train.shares, a run's shares.jsonl, and what a
// checkpoint records. One JSON object per line, {"step": 1, "micro_batches": [3, 1]}: from that
// step on, data rank r reads micro_batches[r] samples per forward. Steps count from 1 and ascend.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/batch_loader.h"

namespace trireme::train {

// The shares of a run, in its folder.
inline constexpr const char* kSharesName = "shares.jsonl";

// Steps count from 0 in dataset::Shares and from 1 in the text.
// Throws: ConfigError, one line that begins with `source`
std::vector<dataset::Shares> parse_shares(std::string_view text, const std::string& source);
std::string to_text(std::span<const dataset::Shares> shares);

// Throws: ConfigError when the file cannot be read, or as parse_shares()
std::vector<dataset::Shares> read_shares(const std::filesystem::path& path);

// Samples of one forward, over all ranks. Every line has as many.
int64_t forward_samples(std::span<const dataset::Shares> shares);
int64_t largest_share(std::span<const dataset::Shares> shares);
// "3+1"; with a step those in force at it, from 0.
std::string describe_shares(std::span<const int64_t> micro_batches);
std::string describe_shares(std::span<const dataset::Shares> shares, int64_t step);
std::vector<int64_t> shares_at(std::span<const dataset::Shares> shares, int64_t step);

// `before` until `step`, then `after`: the shares of a whole run that continues with others there.
// Just `after` when the two differ in ranks or samples per forward.
std::vector<dataset::Shares> joined_shares(std::span<const dataset::Shares> before,
                                           std::span<const dataset::Shares> after, int64_t step);

}  // namespace trireme::train
