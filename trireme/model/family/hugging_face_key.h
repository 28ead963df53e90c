// The keys of config.json. Each is described once, for writing and for reading.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/model/family/config.h"

namespace trireme::inline internal {
class JsonView;
}

namespace trireme::model {

using HuggingFaceValue =
    std::variant<std::nullptr_t, bool, int64_t, double, std::string, std::vector<int64_t>>;

struct HuggingFaceKind;

// What a config.json says.
struct HuggingFaceModel {
  ModelConfig config{};
  const HuggingFaceKind* kind = nullptr;
  std::optional<c10::ScalarType> dtype{};  // empty: the file names none
  bool has_adjacent_pairs = false;         // see HuggingFaceTensor::rotary_rows
};

struct HuggingFaceKey {
  using Value = std::function<HuggingFaceValue(const ModelConfig&)>;

  std::string name;
  // The key's value for a model, which a reader compares with the file's. Null: it is never
  // written, and readers do not compare it.
  Value value{};
  // Puts the file's value into the model. Null: nothing in the model depends on it.
  std::function<void(const JsonView&, HuggingFaceModel&)> take{};
  // What transformers assumes when the key is missing or null, given the keys before. Null: a key
  // that is taken must be there, and another one may be missing.
  Value missing{};
  bool is_written = true;
  bool is_compared = true;   // false: another value changes nothing
  std::string other_name{};  // under which some versions of transformers write it
};

// A class of transformers.
struct HuggingFaceKind {
  std::string_view name;          // for people
  std::string_view type;          // model_type
  std::string_view architecture;  // the class
  // In the order of the file. A key comes after those on which its value depends.
  std::vector<HuggingFaceKey> (*keys)();
  // Sets what the class itself says of a model.
  void (*begin)(ModelConfig&);
  // How the names of tensors begin; files of a model without its head leave it out.
  std::string_view base_prefix = "model.";
};

}  // namespace trireme::model
