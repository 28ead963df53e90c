#include "trireme/tasks/language/hugging_face_import.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/new_folder.h"
#include "trireme/base/listed.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/model/family/family.h"
#include "trireme/model/hugging_face.h"
#include "trireme/model/hugging_face_reader.h"
#include "trireme/tasks/language/expert_buffers.h"
#include "trireme/tasks/language/language.h"
#include "trireme/train/state/saved_run.h"
#include "trireme/train/state/state.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;
using checkpoint::TensorSource;
using model::HuggingFaceTensor;
using model::ModelConfig;

constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;

// Tensors of older versions of transformers that the model computes by itself.
bool is_computed(const std::string& name) {
  constexpr std::array<std::string_view, 3> kEndings = {".attn.bias", ".attn.masked_bias",
                                                        ".rotary_emb.inv_freq"};
  return std::ranges::any_of(kEndings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

// A tensor that the model needs, and the name under which the source has it.
struct Wanted {
  HuggingFaceTensor tensor;
  std::string stored;  // "": it has none
};

// All that a model needs under the names of one form.
struct Form {
  std::vector<Wanted> wanted;
  std::string architecture;
  int64_t num_found = 0;
  bool has_adjacent_pairs = false;  // see model::split_parts()
};

Form look_up(const TensorSource& source, std::vector<HuggingFaceTensor> tensors,
             std::string_view base_prefix) {
  Form form;
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

Form own_form(const TensorSource& source, const ModelConfig& config) {
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
std::optional<Form> hugging_face_form(const TensorSource& source, const ModelConfig& config) {
  try {
    const model::HuggingFaceForm form =
        model::family_of(config).hugging_face_form(model::make_plan(config));
    Form found = look_up(source, form.tensors, form.kind->base_prefix);
    found.architecture = form.kind->architecture;
    return found;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

// The form whose names the source has. Before it is laid out, the model's size is compared with the
// number of the source's tensors, because it comes from a file.
Form find_form(const fs::path& path, const TensorSource& source, const ModelConfig& config) {
  const std::int64_t num_tensors = std::ssize(source.tensors());
  if (config.layers > num_tensors) {
    throw CheckpointError(concat(path.string(), " has ", num_tensors,
                                 " tensors, and model.layers is ", config.layers,
                                 "; expected some for each layer: they are not of one model"));
  }
  Form own = own_form(source, config);
  if (model::num_sparse_blocks(config) * config.sparse.experts > num_tensors) return own;
  std::optional<Form> other = hugging_face_form(source, config);
  return other && other->num_found >= own.num_found ? std::move(*other) : std::move(own);
}

void require_all(const fs::path& path, const TensorSource& source, const Form& form,
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
    const bool is_tied_copy = name == "lm_head.weight" && config.has_tied_head();
    if (!used.contains(name) && !is_computed(name) && !is_tied_copy) unexpected.insert(name);
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
    const Wanted* from;
    size_t part;
  };

  ForeignParameter(const fs::path& path, const TensorSource& source, const Form& form,
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
  const Form& form_;
  at::Tensor meta_;
  std::vector<Piece> pieces_;
};

checkpoint::Entry foreign_entry(const fs::path& path, const TensorSource& source, const Form& form,
                                const std::string& name, const std::vector<int64_t>& shape,
                                c10::ScalarType dtype) {
  const at::Tensor meta = at::empty(shape, at::TensorOptions().dtype(dtype).device(at::kMeta));
  return {name, meta, mesh::Layout(shape, {{"tensor", 1}}), 0,
          std::make_shared<ForeignParameter>(path, source, form, meta)};
}

// All tensors of the checkpoint. `path`, `source` and `form` must outlive them.
std::vector<checkpoint::Entry> make_entries(const fs::path& path, const TensorSource& source,
                                            const Form& form, const ModelConfig& config,
                                            c10::ScalarType dtype) {
  std::map<std::string, std::vector<ForeignParameter::Piece>> pieces;
  for (const Wanted& wanted : form.wanted) {
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

struct Described {
  model::HuggingFaceModel model;
  std::string source;  // for messages
};

Described read_model(const fs::path& source, const HuggingFaceImportOptions& options) {
  fs::path path = options.config;
  if (path.empty() && fs::is_regular_file(source / "config.json")) path = source / "config.json";
  if (path.empty()) return {{}, "the keys of the model"};
  TRIREME_CHECK(fs::is_regular_file(path), "config ", path.string(),
                " does not exist; expected the config.json of the weights");
  const std::string text = read_file(path, kMaxConfigBytes);
  return {model::parse_hugging_face_config(text, path.string()), path.string()};
}

train::RunConfig run_config(const Described& described, c10::ScalarType dtype,
                            const fs::path& output, const HuggingFaceImportOptions& options) {
  const train::TaskTable tasks(&kLanguage, 1);
  train::RunConfig config = train::default_config(tasks);
  language_of(config).model = described.model.config;
  config.train.precision = dtype;
  config.output.folder = output.string();
  config = train::parse_config(train::to_toml(config), described.source, tasks, options.overrides);
  const ModelConfig& model = language_of(config).model;
  TRIREME_CHECK(model.vocab_size > 0,
                "model.vocab_size is 0; expected the number of rows of the embedding: set it, or "
                "name the weights' config.json with --config");
  model::validate(model);
  return config;
}

c10::ScalarType dtype_of(const fs::path& path, const TensorSource& source,
                         const Described& described, const HuggingFaceImportOptions& options) {
  if (options.dtype) return *options.dtype;
  if (described.model.dtype) return *described.model.dtype;
  for (const auto& [name, tensor] : source.tensors()) {
    const auto* const known =
        std::ranges::find(train::kPrecisions, tensor.dtype, &Choice<c10::ScalarType>::value);
    if (known != std::end(train::kPrecisions)) return tensor.dtype;
  }
  throw CheckpointError(concat(path.string(), " has no tensors of ",
                               in_words(names_of(train::kPrecisions)), "; name one with --dtype"));
}

// The tokenizer beside the weights: the first file that a kind of this program reads. Null, with
// the reason, when none can be used.
std::unique_ptr<dataset::Tokenizer> read_tokenizer(const fs::path& source,
                                                   const ModelConfig& config,
                                                   std::string& problem) {
  constexpr std::pair<const char*, std::string_view> kFiles[] = {{"tokenizer.model", "bpe"},
                                                                 {"tokenizer.json", "json"}};
  for (const auto& [name, kind_name] : kFiles) {
    const fs::path path = source / name;
    const auto* const kind = find_choice(dataset::kTokenizerKinds, kind_name);
    if (kind == nullptr || !fs::is_regular_file(path)) continue;
    try {
      auto tokenizer = dataset::make_tokenizer(kind->value, read_file(path, kMaxTokenizerBytes));
      TRIREME_CHECK(tokenizer->vocab_size() <= config.vocab_size, "it has ",
                    tokenizer->vocab_size(), " tokens and the model ", config.vocab_size);
      problem.clear();
      return tokenizer;
    } catch (const Error& error) {
      problem += concat(problem.empty() ? "" : "; ", path.string(), ": ", error.what());
    }
  }
  return nullptr;
}

}  // namespace

HuggingFaceImport import_from_hugging_face(const fs::path& source, const fs::path& output,
                                           const HuggingFaceImportOptions& options) {
  const Described described = read_model(source, options);
  const std::unique_ptr<TensorSource> tensors = checkpoint::open_tensors(source);
  const train::RunConfig config =
      run_config(described, dtype_of(source, *tensors, described, options), output, options);
  const ModelConfig& model = language_of(config).model;
  Form form = find_form(source, *tensors, model);
  form.has_adjacent_pairs = described.model.has_adjacent_pairs;
  require_all(source, *tensors, form, model);

  HuggingFaceImport report{.source = tensors->kind(),
                           .architecture = form.architecture,
                           .dtype = config.dtype(),
                           .num_tensors = std::ssize(form.wanted),
                           .num_parameters = model::num_parameters(model)};
  report.num_bytes = report.num_parameters * static_cast<int64_t>(c10::elementSize(config.dtype()));
  const auto tokenizer = read_tokenizer(source, model, report.tokenizer_problem);
  if (tokenizer) report.tokenizer = tokenizer->kind();

  const auto entries = make_entries(source, *tensors, form, model, config.dtype());
  const train::RunState state{.config = train::to_toml(config)};
  NewFolder target(output);
  const auto world = comm::make_thread_group(1);
  checkpoint::save(target.path() / "checkpoints", state.step, entries, train::to_json(state),
                   *world.front());
  write_file_atomically(target.path() / "config.toml", state.config);
  if (tokenizer) dataset::save_tokenizer(*tokenizer, (target.path() / "tokenizer").string());
  target.commit();
  return report;
}

}  // namespace trireme::tasks
