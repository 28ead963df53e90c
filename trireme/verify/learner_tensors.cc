#include "trireme/verify/learner_tensors.h"

#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/train/callbacks/gradient_record.h"
#include "trireme/train/state/saved_form.h"

namespace trireme::verify {
namespace {

constexpr std::string_view kState = "optimizer.";
constexpr std::string_view kMaster = "optimizer.master.";
constexpr std::string_view kCommon = train::kLearnerPrefix;
constexpr std::string_view kCommonWeight = "learners.common.";
constexpr std::string_view kOuter = "outer.";                    // of a learner, in a checkpoint
constexpr std::string_view kExchangeState = "optimizer.outer.";  // the same here

// The learner of "learners.3.NAME", and NAME; nothing: a tensor of all.
std::optional<std::pair<int, std::string>> parse_own(std::string_view name) {
  constexpr size_t kMostDigits = 7;
  const std::string_view prefix = train::kLearnerPrefix;
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const size_t end = name.find_first_not_of("0123456789");
  if (end == name.npos || end == 0 || end > kMostDigits || name[end] != '.') return std::nullopt;
  return std::pair(std::stoi(std::string(name.substr(0, end))), std::string(name.substr(end + 1)));
}

}  // namespace

bool is_state(std::string_view name) {
  if (name.starts_with(kCommonWeight)) name.remove_prefix(kCommonWeight.size());
  return name.starts_with(kState) || name.starts_with(kCommon);
}

bool is_like_weight(std::string_view name) {
  return !is_state(name) || name.starts_with(kMaster) || name.starts_with(kCommon) ||
         name.starts_with(kExchangeState);
}

bool is_common(std::string_view name) { return name.starts_with(kCommon); }

int num_learners(const std::filesystem::path& folder) {
  int number = 0;
  while (std::filesystem::is_directory(train::folder_of_learner(folder, number))) ++number;
  return number;
}

LearnerTensors::LearnerTensors(std::unique_ptr<const checkpoint::TensorSource> all, int learner)
    : all_(std::move(all)) {
  const std::string first = concat(train::kLearnerPrefix, 0, ".");
  for (const auto& [name, tensor] : all_->tensors()) {
    std::string shown = name;
    if (auto own = parse_own(name)) {
      if (own->first != learner) continue;
      shown = own->second.starts_with(kOuter)
                  ? concat(kExchangeState, own->second.substr(kOuter.size()))
                  : std::move(own->second);
    } else if (learner > 0) {
      continue;
    } else if (all_->tensors().contains(first + name)) {  // the first learner has its own
      shown = concat(kCommonWeight, name);
    }
    tensors_[shown] = tensor;
    saved_[shown] = name;
  }
}

const std::string& LearnerTensors::saved(const std::string& name) const {
  const auto found = saved_.find(name);
  return found == saved_.end() ? name : found->second;
}

}  // namespace trireme::verify
