#include "trireme/model/hugging_face_reader.h"

#include <algorithm>
#include <set>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/model/family/family.h"
#include "trireme/model/hugging_face.h"

namespace trireme::model {
namespace {

using nlohmann::json;

constexpr JsonLimits kLimits{.max_bytes = size_t{1} << 20, .max_values = size_t{1} << 16};

// Keys of any class that do not change the logits: training, generation, loading, memory, names.
constexpr std::string_view kHarmless[] = {"_attn_implementation",
                                          "_attn_implementation_autoset",
                                          "_name_or_path",
                                          "architectures",
                                          "attention_dropout",
                                          "auto_map",
                                          "bad_words_ids",
                                          "begin_suppress_tokens",
                                          "bos_token_id",
                                          "chunk_size_feed_forward",
                                          "cls_token_id",
                                          "decoder_start_token_id",
                                          "do_sample",
                                          "dtype",
                                          "early_stopping",
                                          "eos_token_id",
                                          "exponential_decay_length_penalty",
                                          "finetuning_task",
                                          "forced_bos_token_id",
                                          "forced_eos_token_id",
                                          "gradient_checkpointing",
                                          "id2label",
                                          "initializer_range",
                                          "is_decoder",
                                          "is_encoder_decoder",
                                          "keys_to_ignore_at_inference",
                                          "label2id",
                                          "length_penalty",
                                          "max_length",
                                          "min_length",
                                          "model_type",
                                          "name_or_path",
                                          "no_repeat_ngram_size",
                                          "num_beam_groups",
                                          "num_beams",
                                          "num_return_sequences",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "output_past",
                                          "output_router_logits",
                                          "output_scores",
                                          "pad_token_id",
                                          "prefix",
                                          "pretraining_tp",
                                          "problem_type",
                                          "remove_invalid_values",
                                          "repetition_penalty",
                                          "return_dict",
                                          "return_dict_in_generate",
                                          "sep_token_id",
                                          "suppress_tokens",
                                          "task_specific_params",
                                          "temperature",
                                          "tf_legacy_loss",
                                          "tokenizer_class",
                                          "top_k",
                                          "top_p",
                                          "torch_dtype",
                                          "torchscript",
                                          "transformers_version",
                                          "typical_p",
                                          "unk_token_id",
                                          "use_bfloat16",
                                          "use_cache"};

const HuggingFaceKind& kind_of(const JsonView& root, const std::string& source) {
  const std::vector<const HuggingFaceKind*> kinds = hugging_face_kinds();
  const std::string& type = root.at("model_type").text();
  const auto found = std::ranges::find(kinds, type, &HuggingFaceKind::type);
  if (found != kinds.end()) return **found;
  std::vector<std::string> known;
  for (const HuggingFaceKind* kind : kinds) known.emplace_back(kind->type);
  throw ConfigError(concat(source, ": model_type is ", in_quotes(type),
                           ", an architecture that this program does not have; it reads ",
                           in_words(known)));
}

bool is_plain_rope(const json& rope) {
  return std::ranges::all_of(rope.items(), [](const auto& item) {
    const bool is_type = item.key() == "rope_type" || item.key() == "type";
    return item.key() == "rope_theta" || (is_type && item.value() == "default");
  });
}

// Newer versions of transformers write the rotary angles as one object.
void unpack_rope(json& root) {
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const auto found = root.find(name);
    if (found == root.end() || !found->is_object()) continue;
    const json rope = *found;
    root.erase(found);
    if (rope.contains("rope_theta") && !root.contains("rope_theta")) {
      root["rope_theta"] = rope["rope_theta"];
    }
    if (!is_plain_rope(rope)) root["rope_scaling"] = rope;
  }
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
  Reader(const json& root, const std::string& source)
      : source_(source), root_(root, source), kind_(kind_of(root_, source)), keys_(kind_.keys()) {}

  HuggingFaceModel read() {
    kind_.begin(model_.config);
    for (const HuggingFaceKey& key : keys_) {
      if (key.take) take(key);
    }
    for (const HuggingFaceKey& key : keys_) {
      if (key.value && key.is_compared) compare(key);
    }
    refuse_unknown();
    model_.kind = &kind_;
    model_.dtype = dtype_of(root_);
    return model_;
  }

 private:
  std::optional<JsonView> find(const HuggingFaceKey& key) const {
    auto found = root_.find(key.name);
    if (!found && !key.other_name.empty()) found = root_.find(key.other_name);
    // To transformers null is a value like any other only where a class has no default.
    if (found && found->value().is_null() && key.missing) return std::nullopt;
    return found;
  }

  json missing_value(const HuggingFaceKey& key) const {
    return std::visit([](const auto& value) { return json(value); }, key.missing(model_.config));
  }

  void take(const HuggingFaceKey& key) {
    if (const auto found = find(key)) return key.take(*found, model_);
    TRIREME_CHECK(key.missing, source_, " has no ", key.name, ", which every ", kind_.name,
                  " has; expected the config.json that transformers' save_pretrained() writes");
    const json value = missing_value(key);
    const std::string source = source_ + " without " + key.name;
    key.take(JsonView(value, source), model_);
  }

  // Whether the file and the model that was read from it agree.
  void compare(const HuggingFaceKey& key) const {
    const auto found = find(key);
    if (!found && !key.missing) return;
    const json value = found ? found->value() : missing_value(key);
    const json own =
        std::visit([](const auto& of_type) { return json(of_type); }, key.value(model_.config));
    TRIREME_CHECK(value == own, source_, ": ", key.name, " is ",
                  shown(value.dump(-1, ' ', /*ensure_ascii=*/true), 200),
                  found ? "" : " where the key is missing", "; expected ", own.dump(),
                  ", which is what a ", kind_.name, " here computes");
  }

  void refuse_unknown() const {
    std::set<std::string_view> known(std::begin(kHarmless), std::end(kHarmless));
    for (const HuggingFaceKey& key : keys_) known.insert({key.name, key.other_name});
    for (const auto& [name, value] : root_.members()) {
      TRIREME_CHECK(known.contains(name) || value.value().is_null(), source_, ": ", in_quotes(name),
                    " is ", shown(value.value().dump(-1, ' ', /*ensure_ascii=*/true), 200),
                    ", a key that this program does not know for a ", kind_.name,
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
  TRIREME_CHECK(root.is_object(), source, " is no object; expected transformers' config.json");
  unpack_rope(root);
  return Reader(root, source).read();
}

}  // namespace trireme::model
