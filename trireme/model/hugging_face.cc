// Length: writing and reading config.json go through one table of keys, with the same helpers.
#include "trireme/model/hugging_face.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/model/family/family.h"
#include "trireme/model/family/hugging_face_mapping.h"
#include "trireme/model/hugging_face_nested.h"
#include "trireme/model/keys/hugging_face_rope.h"

namespace trireme::model {
namespace {

using nlohmann::ordered_json;

HuggingFaceForm form_of(const ModelConfig& config) {
  return family_of(config).hugging_face_form(make_plan(config.without_adapters()));
}

// Puts the rows of each pair half the rotary ones apart, or side by side: rows 0, 1, 2, 3, ...
// become 0, 2, ..., 1, 3, ..., or the reverse.
at::Tensor with_pairs(const HuggingFaceTensor& tensor, const at::Tensor& values,
                      bool side_by_side) {
  const int64_t rotary = tensor.rotary_rows, plain = tensor.head_rows - rotary;
  std::vector<int64_t> shape = values.sizes().vec();
  shape[0] = tensor.head_rows;
  shape.insert(shape.begin(), -1);
  const at::Tensor heads = values.reshape(shape);
  const at::Tensor turned = heads.narrow(1, tensor.rotary_first ? 0 : plain, rotary);
  const at::Tensor others = heads.narrow(1, tensor.rotary_first ? rotary : 0, plain);
  const at::Tensor moved =
      (side_by_side ? turned.unflatten(1, {2, -1}) : turned.unflatten(1, {-1, 2}))
          .transpose(1, 2)
          .flatten(1, 2);
  const bool first = tensor.rotary_first;
  return at::cat({first ? moved : others, first ? others : moved}, 1).flatten(0, 1);
}

// The names that transformers gives classes without any.
void add_labels(ordered_json& object, int64_t classes) {
  ordered_json names = ordered_json::object(), numbers = ordered_json::object();
  for (int64_t i = 0; i < classes; ++i) {
    names[std::to_string(i)] = concat("LABEL_", i);
    numbers[concat("LABEL_", i)] = i;
  }
  object["id2label"] = std::move(names);
  object["label2id"] = std::move(numbers);
}

}  // namespace

std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelConfig& config) {
  return form_of(config).tensors;
}

at::Tensor join_parts(const HuggingFaceTensor& tensor, std::span<const at::Tensor> parts) {
  TRIREME_ASSERT(parts.size() == tensor.parts.size(), tensor.name, " of ", parts.size(), " parts");
  at::Tensor joined;
  if (tensor.alternates) {
    joined = at::stack({parts.data(), parts.size()}, 2).flatten(1, 2);
  } else {
    joined = parts.size() == 1 ? parts[0] : at::cat({parts.data(), parts.size()}, 0);
  }
  if (tensor.slice >= 0) joined = joined.select(0, tensor.slice);
  if (tensor.has_adjacent_pairs) joined = with_pairs(tensor, joined, /*side_by_side=*/true);
  if (tensor.is_transposed) joined = joined.transpose(-2, -1).contiguous();
  TRIREME_ASSERT(joined.sizes() == at::IntArrayRef(tensor.shape), tensor.name, " has shape ",
                 joined.sizes(), ", expected ", at::IntArrayRef(tensor.shape));
  return joined;
}

std::vector<at::Tensor> split_parts(const HuggingFaceTensor& tensor, const at::Tensor& values,
                                    bool adjacent_pairs) {
  TRIREME_ASSERT(values.sizes() == at::IntArrayRef(tensor.shape), tensor.name, " has shape ",
                 values.sizes(), ", expected ", at::IntArrayRef(tensor.shape));
  at::Tensor joined = tensor.is_transposed ? values.transpose(-2, -1).contiguous() : values;
  if ((adjacent_pairs || tensor.has_adjacent_pairs) && tensor.rotary_rows > 0)
    joined = with_pairs(tensor, joined, /*side_by_side=*/false);
  if (tensor.parts.size() == 1) return {joined};
  if (tensor.alternates) return joined.unflatten(1, {-1, std::ssize(tensor.parts)}).unbind(2);
  std::vector<int64_t> rows;
  for (size_t i = 0; i < tensor.parts.size(); ++i) {
    rows.push_back(tensor.rows_of(i, joined.size(0)));
  }
  return joined.split_with_sizes(rows, 0);
}

std::string hugging_face_architecture(const ModelConfig& config) {
  return std::string(form_of(config).kind->architecture);
}

std::string hugging_face_config(const ModelConfig& config, c10::ScalarType dtype,
                                std::optional<int64_t> end_of_document, std::string_view kept) {
  const HuggingFaceKind& kind = *form_of(config).kind;
  ordered_json object = {{"architectures", {kind.architecture}}, {"model_type", kind.type}};
  for (const HuggingFaceKey& key : kind.keys()) {
    if (!key.is_written || (key.applies && !key.applies(config))) continue;
    if (key.is_left_out && key.is_left_out(config)) continue;
    ordered_json value =
        std::visit([](const auto& one) { return ordered_json(one); }, key.value(config));
    if (!key.name.starts_with(kRopePrefix)) {
      object[key.name] = std::move(value);
    } else if (!value.is_null()) {
      object[kRopeObject][key.name.substr(std::string_view(kRopePrefix).size())] = std::move(value);
    }
  }
  if (kind.nests_local_rope) nest_local_rope(object);
  if (config.classes > 0) add_labels(object, config.classes);
  object["initializer_range"] = 0.02;
  // The older of two keys. Every version of transformers reads it.
  object["torch_dtype"] = name_of(kTorchDtypes, dtype);
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    object[key] = end_of_document ? ordered_json(*end_of_document) : ordered_json(nullptr);
  }
  // Some classes assume one, whose embedding transformers never trains.
  object["pad_token_id"] = nullptr;
  object["use_cache"] = true;
  if (!kept.empty()) object.update(ordered_json::parse(kept));
  nest(object, kind);
  return object.dump(2) + "\n";
}

// The table of keys that writes config.json also reads it, so both always agree. Reading goes
// through it twice: first the keys that set something of the model, then those whose value must be
// the one that the model computes, as this may depend on all others. A key in no table is refused,
// because it may change what is computed and nobody would notice. Rotary positions are unpacked
// before, as newer files have them in an object. What a file says twice, and what only training
// does differently here, becomes a note.

namespace {

using nlohmann::json;

constexpr JsonLimits kLimits{.max_bytes = size_t{1} << 20, .max_values = size_t{1} << 16};

// Keys of any class that do not change the logits. These are about generation, token ids and other
// tasks; an export of an imported model has them again.
constexpr std::string_view kKept[] = {
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "cls_token_id",
    "decoder_start_token_id",
    "do_sample",
    "early_stopping",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "initializer_range",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tokenizer_class",
    "top_k",
    "top_p",
    "typical_p",
    "unk_token_id",
    "use_cache",
};

// And these are about loading, the program that wrote the file, and memory.
constexpr std::string_view kLeftOut[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "architectures",
    "auto_map",
    "chunk_size_feed_forward",
    "dtype",
    "gradient_checkpointing",
    "is_decoder",
    "is_encoder_decoder",
    "keys_to_ignore_at_inference",
    "model_type",
    "name_or_path",
    "output_past",
    "pretraining_tp",
    "tf_legacy_loss",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
};

// The class that wrote the file; "": it names none.
std::string architecture_of(const JsonView& root) {
  const auto found = root.find("architectures");
  if (!found || !found->value().is_array() || found->value().empty()) return "";
  const json& first = found->value().front();
  return first.is_string() ? first.get<std::string>() : "";
}

const HuggingFaceKind& kind_of(const JsonView& root, const std::string& source) {
  const std::vector<const HuggingFaceKind*> kinds = hugging_face_kinds();
  const std::string& type = root.at("model_type").text();
  // Of a type with several classes the file names one, else it is the first.
  for (const HuggingFaceKind* kind : kinds) {
    if (kind->type == type && kind->architecture == architecture_of(root)) return *kind;
  }
  const auto found = std::ranges::find(kinds, type, &HuggingFaceKind::type);
  if (found != kinds.end()) return **found;
  std::vector<std::string> known;
  for (const HuggingFaceKind* kind : kinds) known.emplace_back(kind->type);
  throw ConfigError(concat(source, ": model_type is ", in_quotes(type),
                           ", an architecture that this program does not have; it reads ",
                           in_words(known)));
}

// A value of the file in a message.
std::string quoted(const json& value) {
  return shown(value.dump(-1, ' ', /*ensure_ascii=*/true), 200);
}

// Where the rotary angles may be; the first counts.
constexpr const char* kRopeObjects[] = {"rope_scaling", "rope_parameters"};

bool is_plain_rope(const json& rope) {
  return std::ranges::all_of(rope.items(), [](const auto& item) {
    const bool is_type = item.key() == "rope_type" || item.key() == "type";
    return item.key() == "rope_theta" || (is_type && item.value() == "default");
  });
}

bool has_rope(const json& root) {
  return std::ranges::any_of(kRopeObjects, [&](const char* name) {
    const auto found = root.find(name);
    return found != root.end() && !found->is_null();
  });
}

void unpack_scaling(const json& rope, json& root) {
  root.erase(kRopeObject);
  for (const auto& [name, value] : rope.items()) {
    const bool is_older_name = name == "type";
    if (name == "rope_theta" || (is_older_name && rope.contains("rope_type"))) continue;
    const std::string member = is_older_name ? "rope_type" : name;
    // Older files have the share beside the object.
    root[name == "partial_rotary_factor" ? name : kRopePrefix + member] = value;
  }
}

// The rotary angles are one object in newer files. As in transformers, rope_scaling is taken before
// rope_parameters, whole, and an angle in the object before the one beside it.
void unpack_rope(json& root, const std::string& source, std::vector<std::string>& notes) {
  for (const auto& [name, value] : root.items()) {
    TRIREME_CHECK(!name.starts_with(kRopePrefix), source, ": ", in_quotes(name),
                  " is a key that this program does not know; put it into an object rope_scaling");
  }
  json rope = json::object();
  std::string from;
  for (const char* name : kRopeObjects) {
    const auto found = root.find(name);
    if (found == root.end() || !found->is_object()) continue;
    if (!found->empty() && !rope.empty() && *found != rope)
      notes.push_back(concat(name, " is another object than ", from, ", which counts"));
    if (rope.empty()) {
      rope = *found;
      from = name;
    }
    root.erase(found);
  }
  if (rope.contains("rope_theta")) {
    const json& theta = rope["rope_theta"];
    const auto beside = root.find("rope_theta");
    if (beside != root.end() && *beside != theta)
      notes.push_back(concat("rope_theta is ", quoted(theta), " in ", from, ", which counts, and ",
                             quoted(*beside), " beside it"));
    root["rope_theta"] = theta;
  }
  if (!is_plain_rope(rope)) unpack_scaling(rope, root);
  if (const auto empty = root.find("rope_parameters"); empty != root.end() && empty->is_null()) {
    root.erase(empty);
  }
}

std::optional<c10::ScalarType> dtype_of(const JsonView& root) {
  for (const char* name : {"dtype", "torch_dtype"}) {
    const auto found = root.find(name);
    if (!found || found->value().is_null()) continue;
    const auto* const dtype = find_choice(kTorchDtypes, found->text());
    if (dtype == nullptr) found->fail("one of " + joined(names_of(kTorchDtypes)));
    return dtype->value;
  }
  return std::nullopt;
}

class Reader {
 public:
  Reader(const json& root, const std::string& source, std::vector<std::string> notes)
      : source_(source), root_(root, source), kind_(kind_of(root_, source)), keys_(kind_.keys()) {
    model_.notes = std::move(notes);
    const HuggingFaceKey plain = no_quantization_key();
    if (std::ranges::find(keys_, plain.name, &HuggingFaceKey::name) == keys_.end())
      keys_.push_back(plain);
  }

  HuggingFaceModel read() {
    kind_.begin(model_);
    for (const HuggingFaceKey& key : keys_) {
      if (key.take && has_effect(key)) take(key);
    }
    if (kind_.finish != nullptr) kind_.finish(root_, model_.config);
    for (const HuggingFaceKey& key : keys_) {
      if (!key.value) continue;
      if (!has_effect(key)) {
        note_without_effect(key);
        continue;
      }
      if (key.is_compared) {
        compare(key);
      } else if (!key.take) {
        note_difference(key);
      }
    }
    refuse_unknown();
    model_.kind = &kind_;
    model_.dtype = dtype_of(root_);
    return model_;
  }

 private:
  std::optional<JsonView> find(const HuggingFaceKey& key) const {
    std::optional<JsonView> found;
    if (!key.other_name.empty()) found = root_.find(key.other_name);
    if (!found) found = root_.find(key.name);
    // In transformers, null is an ordinary value only where a class has no default.
    if (found && found->value().is_null() && key.missing && !key.null) return std::nullopt;
    return found;
  }

  bool has_effect(const HuggingFaceKey& key) const {
    return !key.applies || key.applies(model_.config);
  }

  void note_without_effect(const HuggingFaceKey& key) {
    const auto found = find(key);
    if (!found || found->value().is_null()) return;
    model_.notes.push_back(
        concat(key.name, " is ", quoted(found->value()), ", which changes nothing in this model"));
  }

  static json value_of(const HuggingFaceKey::Value& function, const ModelConfig& config) {
    return std::visit([](const auto& value) { return json(value); }, function(config));
  }

  void take(const HuggingFaceKey& key) {
    const auto found = find(key);
    note_two_names(key);
    if (found && !(key.null && found->value().is_null())) return key.take(*found, model_);
    TRIREME_CHECK(found || key.missing, source_, " has no ", key.name, ", which every ", kind_.name,
                  " has; expected the config.json that transformers' save_pretrained() writes");
    const json value = value_of(found ? key.null : key.missing, model_.config);
    const std::string source = concat(source_, found ? " with null for " : " without ", key.name);
    key.take(JsonView(value, source), model_);
  }

  void note_two_names(const HuggingFaceKey& key) {
    if (key.other_name.empty()) return;
    const auto first = root_.find(key.name), second = root_.find(key.other_name);
    if (!first || !second || first->value() == second->value()) return;
    model_.notes.push_back(concat(key.other_name, " is ", quoted(second->value()),
                                  ", which counts, and ", key.name, ", the same in transformers, ",
                                  quoted(first->value())));
  }

  // A key of training that has another value here.
  void note_difference(const HuggingFaceKey& key) {
    const auto found = find(key);
    if (!found) return;
    const json own = value_of(key.value, model_.config);
    if (found->value() == own) return;
    model_.notes.push_back(concat(key.name, " is ", quoted(found->value()),
                                  ", and this model trains with ", own.dump()));
  }

  // Whether the file and the model that was read from it agree.
  void compare(const HuggingFaceKey& key) const {
    const auto found = find(key);
    if (!found && !key.missing) return;
    const bool is_null = found && key.null && found->value().is_null();
    const json value = is_null ? value_of(key.null, model_.config)
                       : found ? found->value()
                               : value_of(key.missing, model_.config);
    const json own = value_of(key.value, model_.config);
    TRIREME_CHECK(value == own, source_, ": ", key.name, " is ", quoted(value),
                  found ? "" : " where the key is missing", "; expected ", own.dump(),
                  ", which is what a ", kind_.name, " here computes");
  }

  void refuse_unknown() const {
    std::set<std::string_view> known;
    for (const HuggingFaceKey& key : keys_) known.insert({key.name, key.other_name});
    for (const auto& [name, value] : root_.members()) {
      const bool is_known = known.contains(name) || is_harmless_key(name);
      TRIREME_CHECK(is_known || value.value().is_null(), source_, ": ", in_quotes(name), " is ",
                    quoted(value.value()), ", a key that this program does not know for a ",
                    kind_.name,
                    "; if it changes nothing that is computed, remove it from the file");
    }
  }

  const std::string& source_;
  JsonView root_;
  const HuggingFaceKind& kind_;
  std::vector<HuggingFaceKey> keys_;
  HuggingFaceModel model_;
};

}  // namespace

HuggingFaceModel parse_hugging_face_config(std::string_view text, const std::string& source) {
  json root = parse_json(text, source, kLimits);
  TRIREME_CHECK(root.is_object(), source,
                " is not a JSON object; expected transformers' config.json");
  std::vector<std::string> notes;
  const HuggingFaceKind& kind = kind_of(JsonView(root, source), source);
  unnest(root, kind, source);
  if (kind.has_local_rope) unpack_local_rope(root, source, notes);
  if (kind.missing_rope != nullptr && !has_rope(root))
    root[kRopeObject] = json::parse(kind.missing_rope);
  unpack_rope(root, source, notes);
  return Reader(root, source, std::move(notes)).read();
}

bool is_harmless_key(std::string_view name) {
  const auto is_in = [&](const auto& keys) {
    return std::ranges::find(keys, name) != std::end(keys);
  };
  return is_in(kKept) || is_in(kLeftOut);
}

std::string kept_keys(std::string_view text, const std::string& source, const ModelConfig& config) {
  json root = parse_json(text, source, kLimits);
  TRIREME_CHECK(root.is_object(), source,
                " is not a JSON object; expected transformers' config.json");
  const HuggingFaceKind& kind = kind_of(JsonView(root, source), source);
  unnest(root, kind, source);
  json kept = json::object();
  for (const std::string_view name : kKept) {
    if (const auto found = root.find(name); found != root.end()) kept[std::string(name)] = *found;
  }
  for (const HuggingFaceKey& key : kind.keys()) {
    const auto found = root.find(key.name);
    if (found != root.end() && key.is_kept && key.is_kept(config)) kept[key.name] = *found;
  }
  return kept.dump();
}

}  // namespace trireme::model
