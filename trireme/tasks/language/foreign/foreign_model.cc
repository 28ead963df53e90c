#include "trireme/tasks/language/foreign/foreign_model.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/foreign/mxfp4.h"
#include "trireme/model/family/family.h"
#include "trireme/model/hugging_face.h"
#include "trireme/tasks/language/foreign/foreign_form.h"
#include "trireme/train/config/config.h"
#include "trireme/train/config/field_values.h"
#include "trireme/train/task/keys.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;
using checkpoint::TensorSource;
using model::ModelConfig;

constexpr const char* kConfigName = "config.json";
constexpr size_t kMaxConfigBytes = size_t{1} << 20;

bool is_precision(c10::ScalarType dtype) {
  return std::ranges::find(train::kPrecisions, dtype, &Choice<c10::ScalarType>::value) !=
         std::end(train::kPrecisions);
}

std::vector<train::Field> fields_of(ModelConfig& config) {
  train::Keys keys;
  keys.add("model", config);
  keys.add("model", config.attention);
  keys.add("model", config.rope);
  keys.add("model", config.sparse);
  keys.add("vision", config.vision);
  return keys.take();
}

// from, to: the same key in two configs.
void copy_value(const train::Field& from, const train::Field& to) {
  std::visit(
      [&](const auto& target) {
        using Value = std::decay_t<decltype(target)>;
        const Value& source = std::get<Value>(from.value);
        if constexpr (std::is_pointer_v<Value>) {
          *target = *source;
        } else {
          target.assign(source.name());
        }
      },
      to.value);
}

// A key of config.json that has another value for `config` than for the model in the file; "":
// none.
std::string differing_key(const model::HuggingFaceModel& model, const ModelConfig& config) {
  for (const model::HuggingFaceKey& key : model.kind->keys()) {
    if (key.value && key.value(config) != key.value(model.config)) return key.name;
  }
  return "";
}

// Reads only the model's config.json.
ForeignModel read_keys(const fs::path& source, fs::path config) {
  if (config.empty() && is_hugging_face_folder(source)) config = source / kConfigName;
  if (config.empty()) return {{}, "the keys of the model", nullptr};
  TRIREME_CHECK(is_file(config), "config ", config.string(),
                " does not exist or cannot be read; expected the config.json of the weights");
  const std::string text = read_file(config, kMaxConfigBytes);
  return {model::parse_hugging_face_config(text, config.string()), config.string(), nullptr};
}

// The embedding as files of the kind have it. A class of several parts has prefixes of its own.
model::HuggingFaceTensor embedding_of(const model::HuggingFaceKind& kind,
                                      const model::ModelPlan& plan) {
  if (kind.text_type.empty()) return model::own_tensor(plan.parameters().front());
  return model::family_of(plan.config()).hugging_face_form(plan).tensors.front();
}

// See open_foreign_model().
void settle_head(ForeignModel& foreign) {
  ModelConfig& config = foreign.model.config;
  if (foreign.model.kind == nullptr || !config.has_tied_head()) return;
  const std::vector<model::HuggingFaceKey> keys = foreign.model.kind->keys();
  const auto tie = std::ranges::find_if(keys, [](const model::HuggingFaceKey& key) {
    return key.name == "tie_word_embeddings" && key.take;
  });
  if (tie == keys.end()) return;  // its head cannot be another one
  ModelConfig small = config;     // its size comes from a file
  small.layers = small.seq2seq.decoder_layers = 0;
  const model::ModelPlan plan = model::make_plan(small);
  const std::string& embedding = plan.parameters().front().name;
  const TensorSource& tensors = *foreign.tensors;
  const model::HuggingFaceKind& kind = *foreign.model.kind;
  const ForeignForm form = look_up(tensors, {embedding_of(kind, plan)}, kind.base_prefix, config,
                                   std::string(kind.head), kind.other_prefixes);
  const std::string& stored = form.wanted.front().stored;
  if (form.head.empty()) return;
  if (stored == form.head) {
    foreign.model.notes.push_back(
        concat(embedding, " is not stored; it is read from ", form.head, ", which is tied to it"));
    return;
  }
  if (are_equal(tensors, stored, form.head)) return;
  TRIREME_CHECK(!foreign.model.kind->scales_tied_head, foreign.source, ": ", form.head, " is not ",
                stored,
                ", and \"tie_word_embeddings\" is true, which also scales the "
                "logits; set it to false if the head is separate, or remove ",
                form.head);
  const nlohmann::json is_tied = false;
  tie->take(JsonView(is_tied, foreign.source), foreign.model);
  foreign.model.notes.push_back(concat("tie_word_embeddings is true, and ", form.head,
                                       " is another matrix than ", stored, "; the model has both"));
}

}  // namespace

bool is_hugging_face_folder(const fs::path& folder) { return is_file(folder / kConfigName); }

ForeignModel open_foreign_model(const fs::path& source, fs::path config) {
  ForeignModel foreign = read_keys(source, std::move(config));
  foreign.tensors = open_unwrapped(source, foreign.model.notes);
  settle_head(foreign);
  return foreign;
}

void require_same_model(const ForeignModel& foreign, const ModelConfig& config) {
  ModelConfig before = foreign.model.config, after = config;
  if (after.sequence_length < before.sequence_length)
    after.sequence_length = before.sequence_length;
  // Training alone uses them.
  after.dropout = before.dropout;
  after.sparse.balance_loss = before.sparse.balance_loss;
  const std::vector<train::Field> theirs = fields_of(before), ours = fields_of(after);
  for (size_t i = 0; i < theirs.size(); ++i) {
    const std::string found = train::format_value(theirs[i]), own = train::format_value(ours[i]);
    if (found == own) continue;
    // The model of config.json, except for this key.
    ModelConfig changed = foreign.model.config;
    copy_value(ours[i], fields_of(changed)[i]);
    const std::string key = changed.family == before.family ? differing_key(foreign.model, changed)
                                                            : std::string("model_type");
    // The tokenizer of the data may have said it.
    const bool is_of_data = theirs[i].key == "model.vocab_size";
    const bool is_of_labels = theirs[i].key == "model.classes";
    TRIREME_CHECK(key.empty(), theirs[i].key, " is ", own, ", and by ", key, " of ", foreign.source,
                  " it is ", found,
                  is_of_data ? "; prepare the data with that model's tokenizer (data prepare "
                               "--tokenizer FOLDER/tokenizer.json)"
                  : is_of_labels
                      ? "; prepare the data with that model's classes, or begin with a model that "
                        "has no classifier"
                      : "; leave it out or set it to that");
  }
}

c10::ScalarType stored_dtype(const fs::path& path, const TensorSource& source) {
  std::optional<c10::ScalarType> widest;
  for (const auto& [name, tensor] : source.tensors()) {
    if (!is_precision(tensor.dtype)) continue;
    widest = widest ? at::promote_types(*widest, tensor.dtype) : tensor.dtype;
  }
  if (widest) return *widest;
  throw CheckpointError(concat(path.string(), " has no tensors of ",
                               in_words(names_of(train::kPrecisions)), "; name one with --dtype"));
}

std::vector<std::string> notes_on(const ForeignModel& foreign, c10::ScalarType dtype,
                                  const char* option) {
  std::vector<std::string> notes = foreign.model.notes;
  int64_t count = 0;
  c10::ScalarType widest = dtype;
  for (const auto& [name, tensor] : foreign.tensors->tensors()) {
    const bool stays = name.ends_with("e_score_correction_bias");  // fp32 in every model
    if (stays || !is_precision(tensor.dtype)) continue;
    if (at::promote_types(tensor.dtype, dtype) == dtype) continue;
    widest = at::promote_types(tensor.dtype, widest);
    ++count;
  }
  if (count > 0) {
    notes.push_back(concat(count, " tensors are rounded to ", name_of(train::kPrecisions, dtype),
                           "; ", option, "=", name_of(train::kPrecisions, widest),
                           " keeps every value"));
  }
  return notes;
}

namespace {

using checkpoint::TensorSource;

// Parts that may stand anywhere in a name.
constexpr std::string_view kWrappers[] = {"_orig_mod.", "_fsdp_wrapped_module.",
                                          "_checkpoint_wrapped_module."};

std::string without_wrappers(std::string name) {
  for (const std::string_view wrapper : kWrappers) {
    for (size_t at = name.find(wrapper); at != name.npos; at = name.find(wrapper, at)) {
      const bool is_whole_part = at == 0 || name[at - 1] == '.';
      if (is_whole_part) {
        name.erase(at, wrapper.size());
      } else {
        at += wrapper.size();
      }
    }
  }
  return name;
}

// The names of the embedding in all families, with and without their prefixes.
std::set<std::string> embedding_names() {
  std::set<std::string> names;
  const auto add = [&](std::string name, std::string_view prefix) {
    names.insert(name);
    if (name.starts_with(prefix)) names.insert(name.substr(prefix.size()));
  };
  for (const model::HuggingFaceKind* const kind : model::hugging_face_kinds()) {
    model::HuggingFaceModel model;
    kind->begin(model);
    model.config.layers = 0;
    model.config.vocab_size = 1;
    const model::ModelPlan plan = model::make_plan(model.config);
    add(embedding_of(*kind, plan).name, kind->base_prefix);
    const auto titan = model::family_of(model.config).torchtitan_tensors(plan);
    if (!titan.empty()) add(titan.front().name, "model.");
  }
  return names;
}

// Below which names the source has an embedding; of two that begin alike, the shorter one.
std::set<std::string> find_prefixes(const std::map<std::string, std::string>& names) {
  std::set<std::string> prefixes;
  for (const std::string& embedding : embedding_names()) {
    for (const auto& [name, stored] : names) {
      if (!name.ends_with(embedding)) continue;
      const std::string prefix = name.substr(0, name.size() - embedding.size());
      if (prefix.empty() || prefix.ends_with('.')) prefixes.insert(prefix);
    }
  }
  std::erase_if(prefixes, [&](const std::string& prefix) {
    return std::ranges::any_of(prefixes, [&](const std::string& other) {
      return other.size() < prefix.size() && prefix.starts_with(other);
    });
  });
  return prefixes;
}

class Unwrapped : public TensorSource {
 public:
  // stored: the source's name of each of ours
  Unwrapped(std::unique_ptr<TensorSource> source, std::map<std::string, std::string> stored)
      : source_(std::move(source)), stored_(std::move(stored)) {
    for (const auto& [name, theirs] : stored_) tensors_[name] = source_->tensors().at(theirs);
  }

  const std::map<std::string, checkpoint::SourceTensor>& tensors() const override {
    return tensors_;
  }
  at::Tensor read(const std::string& name) const override {
    const auto found = stored_.find(name);
    return source_->read(found == stored_.end() ? name : found->second);
  }
  std::string kind() const override { return source_->kind(); }

 private:
  std::unique_ptr<TensorSource> source_;
  std::map<std::string, std::string> stored_;
  std::map<std::string, checkpoint::SourceTensor> tensors_;
};

}  // namespace

std::unique_ptr<TensorSource> open_unwrapped(const std::filesystem::path& path,
                                             std::vector<std::string>& notes) {
  auto source = checkpoint::with_mxfp4(checkpoint::open_tensors(path), path);
  std::map<std::string, std::string> names;
  bool is_wrapped = false;
  for (const auto& [stored, tensor] : source->tensors()) {
    const std::string name = without_wrappers(stored);
    is_wrapped |= name != stored;
    if (!names.emplace(name, stored).second)
      throw CheckpointError(concat(path.string(), " has two tensors that are ", name,
                                   " without the names of wrappers, such as ", stored,
                                   "; save only one of them"));
  }
  const std::set<std::string> prefixes = find_prefixes(names);
  if (prefixes.size() > 1)
    throw CheckpointError(concat(path.string(), " has several models",
                                 listed("names that one begins with", prefixes),
                                 "; save only one of them"));
  const std::string prefix = prefixes.empty() ? "" : *prefixes.begin();
  if (prefix.empty() && !is_wrapped) return source;
  std::map<std::string, std::string> inside;
  for (const auto& [name, stored] : names) {
    if (name.starts_with(prefix)) inside.emplace(name.substr(prefix.size()), stored);
  }
  if (is_wrapped) notes.emplace_back("names of wrappers, such as _orig_mod, are left out");
  if (!prefix.empty())
    notes.push_back(concat("the model's names begin with \"", prefix, "\", which is left out; ",
                           names.size() - inside.size(), " other tensors are not read"));
  return std::make_unique<Unwrapped>(std::move(source), std::move(inside));
}

}  // namespace trireme::tasks
