#include "trireme/tasks/language/foreign_weights.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/listed.h"
#include "trireme/model/family/family.h"
#include "trireme/model/hugging_face.h"
#include "trireme/model/hugging_face_reader.h"
#include "trireme/tasks/language/expert_buffers.h"
#include "trireme/train/config/config.h"
#include "trireme/train/config/field_values.h"
#include "trireme/train/state/saved_run.h"
#include "trireme/train/task/keys.h"

namespace trireme::tasks::inline internal {
namespace {

namespace fs = std::filesystem;
using checkpoint::TensorSource;
using model::HuggingFaceTensor;
using model::ModelConfig;

constexpr const char* kConfigName = "config.json";
constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// Tensors of older versions of transformers that the model computes by itself.
bool is_computed(const std::string& name) {
  constexpr std::array<std::string_view, 3> kEndings = {".attn.bias", ".attn.masked_bias",
                                                        ".rotary_emb.inv_freq"};
  return std::ranges::any_of(kEndings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

ForeignForm look_up(const TensorSource& source, std::vector<HuggingFaceTensor> tensors,
                    std::string_view base_prefix) {
  ForeignForm form;
  for (HuggingFaceTensor& tensor : tensors) {
    std::string stored = tensor.name;
    if (!source.tensors().contains(stored) && stored.starts_with(base_prefix)) {
      stored.erase(0, base_prefix.size());
    }
    if (!source.tensors().contains(stored)) stored.clear();
    form.num_found += stored.empty() ? 0 : 1;
    form.wanted.push_back({std::move(tensor), std::move(stored)});
  }
  return form;
}

ForeignForm own_form(const TensorSource& source, const ModelConfig& config) {
  std::vector<HuggingFaceTensor> tensors;
  const model::ModelPlan plan = model::make_plan(config);
  for (const model::ParameterPlan& parameter : plan.parameters()) {
    tensors.push_back(model::own_tensor(parameter));
  }
  for (const checkpoint::Entry& buffer : expert_buffers(config)) {
    tensors.push_back({buffer.name, buffer.layout.whole_shape(), {buffer.name}});
  }
  return look_up(source, std::move(tensors), "");
}

// Empty when transformers has no class for the model.
std::optional<ForeignForm> hugging_face_form(const TensorSource& source,
                                             const ModelConfig& config) {
  try {
    const model::HuggingFaceForm form =
        model::family_of(config).hugging_face_form(model::make_plan(config));
    ForeignForm found = look_up(source, form.tensors, form.kind->base_prefix);
    found.architecture = form.kind->architecture;
    return found;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

ForeignForm torchtitan_form(const TensorSource& source, const ModelConfig& config) {
  ForeignForm found = look_up(
      source, model::family_of(config).torchtitan_tensors(model::make_plan(config)), "model.");
  found.architecture = "torchtitan's Transformer";
  found.has_adjacent_pairs = true;
  found.beside = {"optimizer.", "lr_scheduler.", "dataloader.", "train_state."};
  return found;
}

// The form whose names the source has. Before it is laid out, the model's size is compared with the
// number of the source's tensors, because it comes from a file.
ForeignForm find_form(const fs::path& path, const TensorSource& source, const ModelConfig& config) {
  const std::int64_t num_tensors = std::ssize(source.tensors());
  if (config.layers > num_tensors) {
    throw CheckpointError(concat(path.string(), " has ", num_tensors,
                                 " tensors, and model.layers is ", config.layers,
                                 "; expected some for each layer: they are not of one model"));
  }
  ForeignForm best = own_form(source, config);
  if (model::num_sparse_blocks(config) * config.sparse.experts > num_tensors) return best;
  std::optional<ForeignForm> other = hugging_face_form(source, config);
  if (other && other->num_found >= best.num_found) best = std::move(*other);
  ForeignForm titan = torchtitan_form(source, config);
  return titan.num_found > best.num_found ? titan : best;
}

// Whether the tensor is of the trainer that saved it, not of the model.
bool is_beside(const ForeignForm& form, const std::string& name) {
  return std::ranges::any_of(form.beside,
                             [&](std::string_view start) { return name.starts_with(start); });
}

void require_all(const fs::path& path, const TensorSource& source, const ForeignForm& form,
                 const ModelConfig& config) {
  std::set<std::string> used, missing, unexpected, different;
  for (const auto& [tensor, stored] : form.wanted) {
    if (stored.empty()) {
      missing.insert(tensor.name);
      continue;
    }
    used.insert(stored);
    const checkpoint::SourceTensor& found = source.tensors().at(stored);
    if (found.shape != tensor.shape || !c10::isFloatingType(found.dtype)) {
      different.insert(concat(stored, " is ", c10::toString(found.dtype), " ",
                              at::IntArrayRef(found.shape), " and should be ",
                              at::IntArrayRef(tensor.shape)));
    }
  }
  for (const auto& [name, found] : source.tensors()) {
    const bool is_head = name == "lm_head.weight" || name == "output.weight";
    const bool is_tied_copy = is_head && config.has_tied_head();
    if (used.contains(name) || is_computed(name) || is_tied_copy || is_beside(form, name)) continue;
    unexpected.insert(name);
  }
  if (missing.empty() && unexpected.empty() && different.empty()) return;
  throw CheckpointError(concat(path.string(), " does not fit the model", listed("missing", missing),
                               listed("unexpected", unexpected),
                               listed("of another shape or dtype", different),
                               "; compare it with config.json and the keys of [model]"));
}

// One parameter, made of tensors of the source when it is read.
class ForeignParameter : public checkpoint::OffloadedTensor {
 public:
  struct Piece {
    const WantedTensor* from;
    size_t part;
  };

  ForeignParameter(const fs::path& path, const TensorSource& source, const ForeignForm& form,
                   at::Tensor meta)
      : path_(path), source_(source), form_(form), meta_(std::move(meta)) {}

  void add(Piece piece) { pieces_.push_back(piece); }

  at::Tensor read() const override {
    TRIREME_ASSERT(!pieces_.empty(), "a parameter of no tensor");
    if (pieces_[0].from->tensor.slice < 0) return read(pieces_[0]).contiguous();
    at::Tensor whole = at::empty(meta_.sizes(), at::TensorOptions().dtype(meta_.scalar_type()));
    for (const Piece& piece : pieces_) {
      whole.select(0, piece.from->tensor.slice).copy_(read(piece));
    }
    return whole;
  }

  void write(const at::Tensor& /*values*/) override {
    TRIREME_ASSERT(false, "a tensor of another program is written");
  }

 private:
  at::Tensor read(const Piece& piece) const {
    const at::Tensor values = source_.read(piece.from->stored);
    train::require_finite(values, piece.from->stored, path_);
    const std::vector<at::Tensor> parts =
        model::split_parts(piece.from->tensor, values, form_.has_adjacent_pairs);
    return train::in_dtype(parts[piece.part], meta_.scalar_type(), piece.from->stored);
  }

  const fs::path& path_;
  const TensorSource& source_;
  const ForeignForm& form_;
  at::Tensor meta_;
  std::vector<Piece> pieces_;
};

checkpoint::Entry foreign_entry(const fs::path& path, const TensorSource& source,
                                const ForeignForm& form, const std::string& name,
                                const std::vector<int64_t>& shape, c10::ScalarType dtype) {
  const at::Tensor meta = at::empty(shape, at::TensorOptions().dtype(dtype).device(at::kMeta));
  return {name, meta, mesh::Layout(shape, {{"tensor", 1}}), 0,
          std::make_shared<ForeignParameter>(path, source, form, meta)};
}

// All tensors of the checkpoint. `path`, `source` and `form` must outlive them.
std::vector<checkpoint::Entry> make_entries(const fs::path& path, const TensorSource& source,
                                            const ForeignForm& form, const ModelConfig& config,
                                            c10::ScalarType dtype) {
  std::map<std::string, std::vector<ForeignParameter::Piece>> pieces;
  for (const WantedTensor& wanted : form.wanted) {
    for (size_t i = 0; i < wanted.tensor.parts.size(); ++i) {
      pieces[wanted.tensor.parts[i]].push_back({&wanted, i});
    }
  }
  std::vector<checkpoint::Entry> entries = expert_buffers(config);
  for (checkpoint::Entry& buffer : entries) {
    if (!pieces.contains(buffer.name)) continue;  // zeros, as in a new run
    buffer = foreign_entry(path, source, form, buffer.name, buffer.layout.whole_shape(),
                           buffer.local.scalar_type());
  }
  const model::ModelPlan plan = model::make_plan(config);
  for (const model::ParameterPlan& parameter : plan.parameters()) {
    entries.push_back(
        foreign_entry(path, source, form, parameter.name, parameter.layout.whole_shape(), dtype));
  }
  for (checkpoint::Entry& entry : entries) {
    if (!entry.offloaded) continue;
    auto& parameter = dynamic_cast<ForeignParameter&>(*entry.offloaded);
    for (const ForeignParameter::Piece& piece : pieces.at(entry.name)) parameter.add(piece);
  }
  return entries;
}

std::vector<train::Field> fields_of(ModelConfig& config) {
  train::Keys keys;
  keys.add("model", config);
  keys.add("model", config.attention);
  keys.add("model", config.sparse);
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

}  // namespace

bool is_hugging_face_folder(const fs::path& folder) { return is_file(folder / kConfigName); }

DescribedModel read_foreign_model(const fs::path& source, fs::path config) {
  if (config.empty() && is_hugging_face_folder(source)) config = source / kConfigName;
  if (config.empty()) return {{}, "the keys of the model"};
  TRIREME_CHECK(is_file(config), "config ", config.string(),
                " does not exist or cannot be read; expected the config.json of the weights");
  const std::string text = read_file(config, kMaxConfigBytes);
  return {model::parse_hugging_face_config(text, config.string()), config.string()};
}

void require_same_model(const DescribedModel& described, const ModelConfig& config) {
  ModelConfig before = described.model.config, after = config;
  if (after.sequence_length < before.sequence_length)
    after.sequence_length = before.sequence_length;
  after.sparse.balance_loss = before.sparse.balance_loss;  // training alone uses it
  const std::vector<train::Field> theirs = fields_of(before), ours = fields_of(after);
  for (size_t i = 0; i < theirs.size(); ++i) {
    const std::string found = train::format_value(theirs[i]), own = train::format_value(ours[i]);
    if (found == own) continue;
    // The model of config.json but for this key.
    ModelConfig changed = described.model.config;
    copy_value(ours[i], fields_of(changed)[i]);
    const std::string key = changed.family == before.family
                                ? differing_key(described.model, changed)
                                : std::string("model_type");
    TRIREME_CHECK(key.empty(), theirs[i].key, " is ", own, ", and by ", key, " of ",
                  described.source, " it is ", found, "; leave it out or set it to that");
  }
}

c10::ScalarType dtype_of(const fs::path& path, const TensorSource& source,
                         const DescribedModel& described) {
  if (described.model.dtype) return *described.model.dtype;
  for (const auto& [name, tensor] : source.tensors()) {
    const auto* const known =
        std::ranges::find(train::kPrecisions, tensor.dtype, &Choice<c10::ScalarType>::value);
    if (known != std::end(train::kPrecisions)) return tensor.dtype;
  }
  throw CheckpointError(concat(path.string(), " has no tensors of ",
                               in_words(names_of(train::kPrecisions)), "; name one with --dtype"));
}

ForeignWeights::ForeignWeights(fs::path path, std::unique_ptr<TensorSource> source,
                               const ModelConfig& config, bool has_adjacent_pairs,
                               c10::ScalarType dtype)
    : path_(std::move(path)), source_(std::move(source)) {
  form_ = find_form(path_, *source_, config);
  form_.has_adjacent_pairs |= has_adjacent_pairs;
  require_all(path_, *source_, form_, config);
  entries_ = make_entries(path_, *source_, form_, config, dtype);
  for (const checkpoint::Entry& entry : entries_) {
    tensors_[entry.name] = {entry.local.scalar_type(), entry.layout.whole_shape()};
  }
}

at::Tensor ForeignWeights::read(const std::string& name) const {
  const auto found = std::ranges::find(entries_, name, &checkpoint::Entry::name);
  if (found == entries_.end())
    throw CheckpointError(concat(path_.string(), " has no tensor of the parameter \"", name, "\""));
  return found->offloaded ? found->offloaded->read() : found->local;
}

}  // namespace trireme::tasks::inline internal
