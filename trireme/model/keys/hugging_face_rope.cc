#include "trireme/model/keys/hugging_face_rope.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/model/family/hugging_face_mapping.h"

namespace trireme::model {

// Each scaling reads some of the object's members. The others have no effect in transformers, so a
// reader says that and goes on.

namespace {

using Scalings = std::initializer_list<RopeScaling>;

std::function<bool(const ModelConfig&)> one_of(Scalings scalings) {
  return [list = std::vector<RopeScaling>(scalings)](const ModelConfig& config) {
    return std::ranges::find(list, config.rope.rope_scaling) != list.end();
  };
}

// A member of the object that these scalings read.
HuggingFaceKey member_for(Scalings scalings, HuggingFaceKey key) {
  key.name = kRopePrefix + key.name;
  key.applies = one_of(scalings);
  return key;
}

constexpr const char* kPlain = "default";
constexpr const char* kLocalBase = "rope_local_base_freq";
constexpr const char* kFullLayers = "full_attention";
constexpr const char* kLocalLayers = "sliding_attention";

bool is_unscaled(const ModelConfig& config) {
  return config.rope.rope_scaling == RopeScaling::kNone;
}

// is_phi3: Phi-3 has one scaling, and an older name for it.
HuggingFaceKey type_key(bool is_phi3) {
  const auto scaling_of = [is_phi3](const JsonView& found) {
    const std::string& name = found.text();
    if (name == kPlain) return RopeScaling::kNone;
    if (is_phi3) {
      // transformers computes longrope under other names too.
      if (name != "longrope" && name != "su") found.fail("one of default, longrope, su");
      return RopeScaling::kLongRope;
    }
    const auto* const scaling = find_choice(kRopeScalings, name);
    if (scaling == nullptr || scaling->value == RopeScaling::kNone) {
      found.fail("one of default, linear, dynamic, yarn, longrope, llama3");
    }
    return scaling->value;
  };
  return {.name = std::string(kRopePrefix) + "rope_type",
          .value = [](const ModelConfig& config) -> HuggingFaceValue {
            return std::string(name_of(kRopeScalings, config.rope.rope_scaling));
          },
          .take =
              [scaling_of](const JsonView& found, HuggingFaceModel& model) {
                RopeConfig& rope = model.config.rope;
                rope.rope_scaling = scaling_of(found);
                // Its length is that of the file, also where a run has another one.
                if (rope.rope_scaling == RopeScaling::kDynamic) {
                  rope.rope_original_length = model.config.sequence_length;
                }
              },
          .missing = always(std::string(kPlain)),
          .is_compared = false,
          // A plain one has no object.
          .is_left_out = is_unscaled};
}

// Longrope may leave it to the two lengths, and yarn by null.
HuggingFaceKey factor_key() {
  const auto by_lengths = [](Scalings scalings) {
    return [may = one_of(scalings)](const ModelConfig& config) -> HuggingFaceValue {
      TRIREME_CHECK(may(config), kRopeObject, " of type ",
                    name_of(kRopeScalings, config.rope.rope_scaling),
                    " has no factor; expected a number");
      const auto original = static_cast<double>(config.rope.rope_original_length);
      return std::max(1.0, static_cast<double>(config.sequence_length) / original);
    };
  };
  HuggingFaceKey key = mapped("factor", &RopeConfig::rope_factor);
  key.missing = by_lengths({RopeScaling::kLongRope});
  key.null = by_lengths({RopeScaling::kYarn, RopeScaling::kLongRope});
  return key;
}

// 0 is ours for a number that the file does not have.
HuggingFaceKey number_or_none(std::string name, double RopeConfig::*member) {
  return {.name = std::move(name),
          .value = [member](const ModelConfig& config) -> HuggingFaceValue {
            if (config.rope.*member > 0) return config.rope.*member;
            return nullptr;
          },
          .take =
              [member](const JsonView& found, HuggingFaceModel& model) {
                const bool is_none = found.value().is_null();
                model.config.rope.*member = is_none ? 0 : found.number(1e-6, 1e6);
              },
          .missing = always(nullptr),
          .null = always(nullptr),
          .is_compared = false};
}

HuggingFaceKey truncate_key() {
  HuggingFaceKey key = mapped("truncate", &RopeConfig::rope_truncate, always(true));
  key.null = always(false);
  return key;
}

HuggingFaceKey factors_key(std::string name, std::string RopeConfig::*member) {
  return {.name = std::move(name),
          .value = [member](const ModelConfig& config) -> HuggingFaceValue {
            return rope_factors(config.rope.*member);
          },
          .take =
              [member](const JsonView& found, HuggingFaceModel& model) {
                std::string text;
                for (const JsonView& one : found.elements()) {
                  // As JSON writes numbers: shortest, and read back with the same bits.
                  text += (text.empty() ? "" : ",") + nlohmann::json(one.number(1e-6, 1e6)).dump();
                }
                model.config.rope.*member = text;
              }};
}

// The file of a plain model has null for the object.
HuggingFaceKey no_object_key() {
  HuggingFaceKey key = fixed(kRopeObject, nullptr);
  key.is_left_out = [](const ModelConfig& config) { return !is_unscaled(config); };
  return key;
}

}  // namespace

HuggingFaceKey length_key() {
  HuggingFaceKey key = mapped("max_position_embeddings", &ModelConfig::sequence_length);
  key.value = [](const ModelConfig& config) -> HuggingFaceValue {
    const RopeConfig& rope = config.rope;
    const bool is_original =
        rope.rope_scaling == RopeScaling::kDynamic && rope.rope_original_length > 0;
    return is_original ? rope.rope_original_length : config.sequence_length;
  };
  return key;
}

namespace {

// original: where the file has the length of the pretraining
std::vector<HuggingFaceKey> keys_with(HuggingFaceKey original, bool is_phi3) {
  using enum RopeScaling;
  return {no_object_key(),
          type_key(is_phi3),
          std::move(original),
          member_for({kLinear, kDynamic, kYarn, kLongRope, kLlama3}, factor_key()),
          member_for({kLlama3}, mapped("low_freq_factor", &RopeConfig::rope_low_factor)),
          member_for({kLlama3}, mapped("high_freq_factor", &RopeConfig::rope_high_factor)),
          member_for({kYarn}, mapped("beta_fast", &RopeConfig::rope_beta_fast, always(32.0))),
          member_for({kYarn}, mapped("beta_slow", &RopeConfig::rope_beta_slow, always(1.0))),
          member_for({kYarn}, truncate_key()),
          member_for({kYarn}, number_or_none("mscale", &RopeConfig::rope_mscale)),
          member_for({kYarn}, number_or_none("mscale_all_dim", &RopeConfig::rope_mscale_all_dim)),
          member_for({kYarn, kLongRope},
                     number_or_none("attention_factor", &RopeConfig::rope_attention_factor)),
          member_for({kLongRope}, factors_key("short_factor", &RopeConfig::rope_short_factors)),
          member_for({kLongRope}, factors_key("long_factor", &RopeConfig::rope_long_factors))};
}

HuggingFaceKey original_key(HuggingFaceKey::Value missing) {
  HuggingFaceKey key = mapped("original_max_position_embeddings", &RopeConfig::rope_original_length,
                              std::move(missing));
  key.value = [](const ModelConfig& config) -> HuggingFaceValue {
    const int64_t length = config.rope.rope_original_length;
    return length > 0 ? length : config.sequence_length;
  };
  key.take = [](const JsonView& found, HuggingFaceModel& model) {
    // 0 is ours for the length of a sequence.
    model.config.rope.rope_original_length = found.integer(1, kMaxSequence);
  };
  return key;
}

}  // namespace

std::vector<HuggingFaceKey> rope_keys() {
  using enum RopeScaling;
  return keys_with(member_for({kYarn, kLongRope, kLlama3},
                              original_key([](const ModelConfig& config) -> HuggingFaceValue {
                                return config.sequence_length;
                              })),
                   /*is_phi3=*/false);
}

std::vector<HuggingFaceKey> phi3_rope_keys() {
  HuggingFaceKey original = original_key(always(int64_t{4096}));
  // It counts before that in the object.
  original.applies = one_of({RopeScaling::kLongRope});
  std::vector<HuggingFaceKey> keys = keys_with(std::move(original), /*is_phi3=*/true);
  keys.push_back(ignored(std::string(kRopePrefix) + "original_max_position_embeddings"));
  keys.push_back(mapped("partial_rotary_factor", &RopeConfig::rotary_share, always(1.0)));
  return keys;
}

HuggingFaceKey local_base_key(double missing) {
  return {.name = kLocalBase,
          .value = [](const ModelConfig& config) -> HuggingFaceValue {
            const double base = config.rope.rope_local_base;
            return base > 0 ? base : config.rope_base;
          },
          .take =
              [](const JsonView& found, HuggingFaceModel& model) {
                RopeConfig& rope = model.config.rope;
                rope.rope_local_base = read_as(found, &RopeConfig::rope_local_base);
                if (rope.rope_local_base <= 1) found.fail("more than 1");
              },
          .missing = always(missing),
          // Without a layer that has it, it says nothing.
          .is_compared = false};
}

namespace {

// A kind of layers in rope_parameters; empty: the file has none.
nlohmann::json rope_of_layers(const nlohmann::json& root, const std::string& source,
                              const char* kind) {
  const auto found = JsonView(root, source).at("rope_parameters").find(kind);
  if (!found || found->value().is_null()) return nlohmann::json::object();
  if (!found->value().is_object()) found->fail("an object");
  return found->value();
}

}  // namespace

void unpack_local_rope(nlohmann::json& root, const std::string& source,
                       std::vector<std::string>& notes) {
  const JsonView view(root, source);
  const auto both = view.find("rope_parameters");
  if (!both || both->value().is_null()) return;
  for (const auto& [name, value] : both->members()) {
    TRIREME_CHECK(name == kFullLayers || name == kLocalLayers, source, ": rope_parameters has ",
                  in_quotes(name), "; expected an object ", kFullLayers, " and one ", kLocalLayers);
  }
  nlohmann::json full = rope_of_layers(root, source, kFullLayers);
  const nlohmann::json local = rope_of_layers(root, source, kLocalLayers);
  for (const auto& [name, value] : local.items()) {
    const bool is_type = name == "rope_type" || name == "type";
    const bool is_plain = name == "rope_theta" || (is_type && value == kPlain);
    if (!is_plain)
      both->at(kLocalLayers).at(name).fail("plain positions, with no key but rope_theta");
  }
  if (const auto theta = local.find("rope_theta"); theta != local.end()) {
    const auto beside = root.find(kLocalBase);
    if (beside != root.end() && *beside != *theta)
      notes.push_back(concat("rope_theta of ", kLocalLayers, " counts, and not ", kLocalBase,
                             ", another number"));
    root[kLocalBase] = *theta;
  }
  // As transformers joins them.
  const auto scaling = root.find(kRopeObject);
  if (scaling != root.end() && scaling->is_object()) full.update(*scaling);
  root[kRopeObject] = std::move(full);
  root.erase("rope_parameters");
}

void nest_local_rope(nlohmann::ordered_json& root) {
  using nlohmann::ordered_json;
  ordered_json full = {{"rope_type", kPlain}};
  // null of a plain one
  if (const auto scaling = root.find(kRopeObject); scaling != root.end()) {
    if (scaling->is_object()) full = *scaling;
    root.erase(kRopeObject);
  }
  full["rope_theta"] = root.at("rope_theta");
  const ordered_json local = {{"rope_type", kPlain}, {"rope_theta", root.at(kLocalBase)}};
  root.erase("rope_theta");
  root.erase(kLocalBase);
  root["rope_parameters"] = {{kFullLayers, std::move(full)}, {kLocalLayers, local}};
}

void check_deepseek_rope(const JsonView& root, ModelConfig& config) {
  // There transformers scales the scores of every scaling by it; here yarn has it alone.
  const RopeScaling scaling = config.rope.rope_scaling;
  const auto found = root.find(std::string(kRopePrefix) + "mscale_all_dim");
  if (!found || found->value().is_null() || scaling == RopeScaling::kYarn) return;
  if (scaling != RopeScaling::kNone) found->fail("null, or rope_type \"yarn\"");
}

}  // namespace trireme::model
