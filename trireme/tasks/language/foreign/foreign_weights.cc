#include "trireme/tasks/language/foreign/foreign_weights.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"
#include "trireme/model/hugging_face.h"
#include "trireme/tasks/language/foreign/foreign_form.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;
using checkpoint::TensorSource;
using model::ModelConfig;

// Tensors of older versions of transformers that the model computes itself.
bool is_computed(const std::string& name) {
  constexpr std::array<std::string_view, 4> kEndings = {
      ".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq", "embeddings.position_ids"};
  return std::ranges::any_of(kEndings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

// Whether the tensor is of the trainer that saved it, not of the model.
bool is_beside(const ForeignForm& form, const std::string& name) {
  return std::ranges::any_of(form.beside,
                             [&](std::string_view start) { return name.starts_with(start); });
}

// Whether only other tasks read it, such as BERT's next-sentence head.
bool is_of_other_task(const ForeignForm& form, const std::string& name) {
  if (form.kind == nullptr) return false;
  const std::string_view base = form.kind->base_prefix;
  return std::ranges::any_of(form.kind->other_tasks, [&](std::string_view start) {
    return name.starts_with(start) ||
           (start.starts_with(base) && name.starts_with(start.substr(base.size())));
  });
}

// Whether it is of the layers behind the last with which DeepSeek predicts further tokens.
bool is_prediction_layer(const ModelConfig& config, const std::string& name) {
  return config.attention.is_latent() &&
         name.starts_with(concat("model.layers.", config.layers, "."));
}

// Whether transformers ties it to a tensor that the model has under another name.
// Throws: CheckpointError when the file has other values for it
bool is_copy(const fs::path& path, const TensorSource& source, const ForeignForm& form,
             const std::string& name) {
  if (form.kind == nullptr) return false;
  for (const auto& [copy, original] : form.kind->copies) {
    if (name != copy) continue;
    const std::string of(original);
    if (!source.tensors().contains(of) || are_equal(source, name, of)) return true;
    throw CheckpointError(concat(path.string(), ": ", name, " has other values than ", of,
                                 ", which transformers ties to it; remove the one that does not "
                                 "count"));
  }
  return false;
}

// Returns which tensors are left out because this model does not compute them, in words; "": none.
std::string require_all(const fs::path& path, const TensorSource& source, const ForeignForm& form,
                        const ModelConfig& config) {
  int64_t prediction_layers = 0, other_tasks = 0;
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
    const bool is_tied_copy = name == form.head && config.has_tied_head();
    if (used.contains(name) || is_computed(name) || is_tied_copy || is_beside(form, name)) continue;
    if (is_copy(path, source, form, name)) continue;
    if (is_prediction_layer(config, name)) {
      ++prediction_layers;
    } else if (is_of_other_task(form, name)) {
      ++other_tasks;
    } else {
      unexpected.insert(name);
    }
  }
  if (missing.empty() && unexpected.empty() && different.empty()) {
    if (prediction_layers > 0)
      return concat(prediction_layers, " tensors of layers that predict further tokens");
    return other_tasks > 0 ? concat(other_tasks, " tensors that only other tasks read") : "";
  }
  throw CheckpointError(concat(path.string(), " does not fit the model", listed("missing", missing),
                               listed("unexpected", unexpected),
                               listed("with a different shape or dtype", different),
                               "; compare it with config.json and the keys of [model]"));
}

void require_no_other_head(const fs::path& path, const TensorSource& source,
                           const ForeignForm& form, const ModelConfig& config) {
  const std::string& embedding = form.wanted.front().stored;
  if (!config.has_tied_head() || form.head.empty() || form.head == embedding) return;
  if (are_equal(source, embedding, form.head)) return;
  throw CheckpointError(concat(path.string(), ": ", form.head, " is another matrix than ",
                               embedding, ", and the model's head is the embedding; set ",
                               config.family == "gpt2" ? "model.separate_head to true"
                               : config.family == "bert"
                                   ? "it to the embedding: no other is trained here"
                                   : "model.tied_embedding to false"));
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
    if (!pieces.contains(parameter.name)) continue;  // the source may lack it
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

}  // namespace

ForeignWeights::ForeignWeights(fs::path path, std::unique_ptr<TensorSource> source,
                               const ModelConfig& config, bool has_adjacent_pairs,
                               c10::ScalarType dtype, const std::string& may_lack)
    : path_(std::move(path)), source_(std::move(source)) {
  form_ = find_form(path_, *source_, config);
  form_.has_adjacent_pairs |= has_adjacent_pairs;
  std::erase_if(form_.wanted, [&](const WantedTensor& wanted) {
    return wanted.stored.empty() && matches_any(may_lack, wanted.tensor.name);
  });
  left_out_ = require_all(path_, *source_, form_, config);
  require_no_other_head(path_, *source_, form_, config);
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

}  // namespace trireme::tasks
