// A model in Hugging Face's form: the class that loads it, its tensors, and the keys of its
// config.json. Each key is described once, for writing and for reading.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/model/family/model_config.h"
#include "trireme/model/family/plan.h"

namespace trireme {
class JsonView;
}

namespace trireme::model {

using HuggingFaceValue =
    std::variant<std::nullptr_t, bool, int64_t, double, std::string, std::vector<int64_t>,
                 std::vector<double>, std::vector<std::string>>;

struct HuggingFaceKind;

// Begins the names of a vision tower's keys, which files have in an object of that name.
inline constexpr const char* kVisionPrefix = "vision_config.";

// The contents of a config.json.
struct HuggingFaceModel {
  ModelConfig config{};
  const HuggingFaceKind* kind = nullptr;
  std::optional<c10::ScalarType> dtype{};  // empty: the file names none
  bool has_adjacent_pairs = false;         // see HuggingFaceTensor::rotary_rows
  // One line for each fact that the file says twice, or that trains otherwise here.
  std::vector<std::string> notes{};
};

struct HuggingFaceKey {
  using Value = std::function<HuggingFaceValue(const ModelConfig&)>;

  std::string name;
  // The key's value for a model, which a reader compares with the file's. Null: it is never
  // written, and readers do not compare it.
  Value value{};
  // Puts the file's value into the model. Null: nothing in the model depends on it.
  std::function<void(const JsonView&, HuggingFaceModel&)> take{};
  // The value that transformers assumes when the key is missing or null, given the earlier keys.
  // Null: a key that is taken is required; any other may be missing.
  Value missing{};
  Value null{};  // what it assumes for null, where that is something else
  bool is_written = true;
  bool is_compared = true;   // false: another value changes no logits
  std::string other_name{};  // its second name in transformers, whose value wins over the first's
  // Whether the key has an effect in the model as the earlier keys make it. Where it has none, it
  // is not written, and readers say that it is there. Null: always.
  std::function<bool(const ModelConfig&)> applies{};
  // Whether writers leave it out, because it says nothing of this model. Null: never.
  std::function<bool(const ModelConfig&)> is_left_out{};
  // Whether an export of an imported model says what the imported file said. Null: never.
  std::function<bool(const ModelConfig&)> is_kept{};
};

// A class of transformers.
struct HuggingFaceKind {
  std::string_view name;          // for people
  std::string_view type;          // model_type
  std::string_view architecture;  // the class
  // In the order of the file. A key comes after those on which its value depends.
  std::vector<HuggingFaceKey> (*keys)();
  // Sets what the class itself says of a model.
  void (*begin)(HuggingFaceModel&);
  // Prefix of the tensor names, which files of a model without its head omit.
  std::string_view base_prefix = "model.";
  // Takes, or checks, what depends on several keys of the file, after all others. Null: nothing
  // does.
  // Throws: ConfigError
  void (*finish)(const JsonView& root, ModelConfig& config) = nullptr;
  // The name of a head of its own, and of what a file may hold twice because transformers ties it:
  // the copy and its original.
  std::string_view head = "lm_head.weight";
  std::span<const std::pair<std::string_view, std::string_view>> copies{};
  // Prefixes of the tensors that only other tasks read.
  std::span<const std::string_view> other_tasks{};
  // Whether layers with a window have rotary positions of their own, in rope_parameters an object
  // for each kind of layers.
  bool has_local_rope = false;
  // Whether it reads both from that object only, so that a writer puts them there.
  bool nests_local_rope = false;
  // Of a class whose file has its parts in objects: their model_type, and the keys beside them. See
  // hugging_face_nested.h. Empty: the file is flat.
  std::string_view text_type{};
  std::string_view vision_type{};
  std::span<const std::string_view> outer{};
  // Prefixes of the tensor names, and others that files may have in their place.
  std::span<const std::pair<std::string_view, std::string_view>> other_prefixes{};
  // The object of rotary positions that the class assumes in a file without one, as JSON. Null:
  // none.
  const char* missing_rope = nullptr;
  // Whether the logits of a tied head are scaled, so that tie_word_embeddings says more than which
  // weights there are.
  bool scales_tied_head = false;
};

struct HuggingFaceTensor {
  std::string name;
  std::vector<int64_t> shape;
  // Our parameters, joined along their output dimension in this order.
  std::vector<std::string> parts;
  // true: Hugging Face stores [in, out]. Ours are [out, in]. Of stacks, in each matrix.
  bool is_transposed = false;
  // true: the parts are stacks of all experts, [E, F, D] or [E, F], and F is where they are joined:
  // a row of the first, that of the second, ..., the next of the first.
  bool alternates = false;
  // The tensor is this index of the parameters' first dimension, one expert of all; -1: they are
  // whole.
  int64_t slice = -1;
  // Some files store the two rows of each pair that rotary positions turn next to each other, where
  // ours are halves apart: of every `head_rows` rows the last `rotary_rows`, or the first. 0: there
  // are none.
  int64_t head_rows = 0;
  int64_t rotary_rows = 0;
  bool rotary_first = false;
  // true: all files of the class store them so. An export writes them so, too.
  bool has_adjacent_pairs = false;
  // Outputs of each part; empty: all parts have one shape.
  std::vector<int64_t> part_rows{};

  // The outputs of part i, one of `all` that the parts have together.
  int64_t rows_of(size_t i, int64_t all) const {
    return part_rows.empty() ? all / std::ssize(parts) : part_rows.at(i);
  }
};

// A tensor that is one parameter, under the parameter's own name.
inline HuggingFaceTensor own_tensor(const ParameterPlan& parameter) {
  return {parameter.name, parameter.layout.whole_shape(), {parameter.name}};
}

struct HuggingFaceForm {
  const HuggingFaceKind* kind;
  // In the plan's order. Each parameter, or each slice of it, is part of exactly one tensor.
  std::vector<HuggingFaceTensor> tensors{};
};

}  // namespace trireme::model
