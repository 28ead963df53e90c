#include "trireme/tasks/language/foreign/peft_adapters.h"

#include <cmath>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/model/hugging_face.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;

using model::HuggingFaceTensor;

constexpr size_t kMaxPeftConfigBytes = size_t{1} << 20;
constexpr double kMaxAlpha = 1e9;

// The keys of adapter_config.json that say what is computed.
struct PeftKeys {
  double alpha = 0;
  bool has_magnitudes = false;             // use_dora
  bool by_root = false;                    // use_rslora: the scale is alpha / sqrt(rank)
  std::map<std::string, double> alphas{};  // of modules, by their names or the ends of these

  // As peft does, but for regular expressions.
  double scale_of(const std::string& module, int64_t rank) const {
    double own = alpha;
    for (const auto& [name, value] : alphas) {
      if (module == name || module.ends_with("." + name)) own = value;
    }
    const auto ranks = static_cast<double>(rank);
    return own / (by_root ? std::sqrt(ranks) : ranks);
  }
};

bool says_nothing(const nlohmann::json& value) {
  return value.is_null() || value == false || value.empty();
}

// Refuses what makes another model of the same tensors.
void check_peft_kind(const JsonView& object) {
  if (object.at("peft_type").text() != "LORA") object.at("peft_type").fail("\"LORA\"");
  for (const char* key :
       {"lora_bias", "use_qalora", "use_bdlora", "layer_replication", "arrow_config",
        "alora_invocation_tokens", "kasa_config", "velora_config", "monteclora_config"}) {
    const auto found = object.find(key);
    if (found && !says_nothing(found->value()))
      found->fail("null or false, as there is no such adapter here");
  }
  const auto bias = object.find("bias");
  if (bias && bias->text() != "none")
    bias->fail("\"none\": an adapter here has no biases of its own");
  const auto init = object.find("init_lora_weights");
  if (!init || !init->value().is_string()) return;
  const std::string& name = init->text();
  if (name != "gaussian" && name != "eva" && name != "orthogonal")
    init->fail(
        "true, false, \"gaussian\", \"eva\" or \"orthogonal\", which leave the model's own "
        "weights as they are");
}

PeftKeys read_peft_keys(const fs::path& path) {
  TRIREME_CHECK(is_file(path), "lora.init: ", path.string(),
                " does not exist or cannot be read; expected a folder that peft wrote");
  const std::string source = path.string();
  const nlohmann::json root = parse_json(read_file(path, kMaxPeftConfigBytes), source);
  const JsonView object(root, source);
  check_peft_kind(object);
  PeftKeys keys{.alpha = object.at("lora_alpha").number(0, kMaxAlpha)};
  const auto is_true = [&](const char* key) {
    const auto found = object.find(key);
    return found && !found->value().is_null() && found->boolean();
  };
  keys.by_root = is_true("use_rslora");
  keys.has_magnitudes = is_true("use_dora");
  const auto alphas = object.find("alpha_pattern");
  if (!alphas || says_nothing(alphas->value())) return keys;
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  for (const auto& [name, alpha] : alphas->members()) {
    TRIREME_CHECK(name.find_first_not_of(kPlain) == name.npos, source, ": alpha_pattern has ",
                  in_quotes(name), "; expected names of modules or their ends, such as \"q_proj\"");
    keys.alphas[name] = alpha.number(0, kMaxAlpha);
  }
  return keys;
}

}  // namespace

std::string adapter_patterns() {
  std::string patterns;
  for (const char* const end : model::kAdapterParameters) {
    patterns += concat(patterns.empty() ? "" : ",", "*", end);
  }
  return patterns;
}

PeftAdapters::PeftAdapters(fs::path folder, const model::ModelConfig& config,
                           bool has_adjacent_pairs, std::unique_ptr<checkpoint::TensorSource> base)
    : folder_(std::move(folder)),
      has_adjacent_pairs_(has_adjacent_pairs),
      base_(std::move(base)),
      form_(peft_form(config)),
      tensors_(base_->tensors()) {
  const PeftKeys keys = read_peft_keys(folder_ / kPeftConfig);
  const char* const expected = keys.has_magnitudes ? "true" : "false";
  TRIREME_CHECK(keys.has_magnitudes == config.lora.dora, "use_dora of ",
                (folder_ / kPeftConfig).string(), " is ", expected, "; set lora.dora to ",
                expected);
  adapter_ = checkpoint::open_tensors(folder_ / kPeftWeights);
  std::set<std::string> missing, unexpected;
  for (const auto& [name, tensor] : adapter_->tensors()) unexpected.insert(name);
  const auto wants = [&](const std::string& name) {
    if (unexpected.erase(name) == 0) missing.insert(name);
  };
  for (const PeftMatrix& matrix : form_.matrices) {
    wants(kPeftPrefix + matrix.module() + model::kAdapterA);
    wants(kPeftPrefix + matrix.module() + model::kAdapterB);
    if (config.lora.dora) wants(kPeftPrefix + matrix.module() + kPeftMagnitude);
  }
  for (const PeftStack& stack : form_.stacks) {
    wants(kPeftPrefix + stack.module + model::kAdapterA);
    wants(kPeftPrefix + stack.module + model::kAdapterB);
  }
  for (const HuggingFaceTensor& tensor : form_.saved) wants(kPeftPrefix + tensor.name);
  if (!missing.empty() || !unexpected.empty()) {
    throw CheckpointError(concat("lora.init: ", folder_.string(),
                                 " has other adapters than the model", listed("missing", missing),
                                 listed("unexpected", unexpected),
                                 "; set lora.targets and lora.also_train to the folder's"));
  }
  const auto scale_of = [&](const std::string& module, const std::string& name, int64_t experts) {
    const checkpoint::SourceTensor& a =
        adapter_->tensors().at(kPeftPrefix + module + model::kAdapterA);
    const int64_t rank = a.shape.empty() ? 0 : a.shape[0] / experts;
    return rank == 0 ? 0 : keys.scale_of(name, rank);
  };
  for (const PeftMatrix& matrix : form_.matrices) {
    add_matrix(matrix, config.lora, scale_of(matrix.module(), matrix.module(), 1));
  }
  for (const PeftStack& stack : form_.stacks) {
    add_stack(stack, config.lora, scale_of(stack.module, stack.name, stack.experts));
  }
  for (const HuggingFaceTensor& tensor : form_.saved) {
    const std::string stored = kPeftPrefix + tensor.name;
    require(stored, tensor.shape);
    for (size_t i = 0; i < tensor.parts.size(); ++i) {
      add(tensor.parts[i], tensors_.at(tensor.parts[i]).shape, [this, stored, &tensor, i] {
        return model::split_parts(tensor, read_finite(stored), has_adjacent_pairs_)[i];
      });
    }
  }
}

// Either each of our layers has its own ranks, in blocks of B, as an export writes them; or all
// share A, as in peft's own adapter of a joined matrix, and each takes its rows of B.
void PeftAdapters::add_matrix(const PeftMatrix& matrix, const model::AdapterConfig& lora,
                              double scale) {
  const std::string layer = kPeftPrefix + matrix.module();
  const std::string stored_a = layer + model::kAdapterA, stored_b = layer + model::kAdapterB;
  const int64_t of_blocks = lora.rank * std::ssize(matrix.parts);
  const checkpoint::SourceTensor& a = adapter_->tensors().at(stored_a);
  const bool in_blocks = !a.shape.empty() && a.shape[0] == of_blocks;
  const int64_t rank = in_blocks ? of_blocks : lora.rank;
  TRIREME_CHECK(!a.shape.empty() && a.shape[0] == rank, "lora.rank is ", lora.rank, " and ",
                stored_a, " of ", folder_.string(), " has ", a.shape.empty() ? 0 : a.shape[0],
                " rows; set it to that");
  require(stored_a, {rank, matrix.in()});
  require(stored_b, {matrix.out(), rank});
  check_scale(stored_a, lora, scale);
  int64_t first = 0;  // rank of the part
  for (const size_t part : matrix.parts) {
    const std::string own = module_of(matrix.tensor.parts[part]);
    const mesh::Range rows = matrix.rows_of(part);
    add(own + model::kAdapterA, {lora.rank, matrix.in()}, [this, stored_a, first, lora] {
      return read_finite(stored_a).narrow(0, first, lora.rank);
    });
    add(own + model::kAdapterB, {rows.size, lora.rank},
        [this, stored_b, &matrix, part, first, lora, in_blocks] {
          HuggingFaceTensor tensor = matrix.tensor;  // B has its outputs, and ranks for inputs
          tensor.is_transposed = false;
          const at::Tensor whole = read_finite(stored_b);
          tensor.shape = whole.sizes().vec();
          const at::Tensor b = model::split_parts(tensor, whole, has_adjacent_pairs_)[part];
          at::Tensor others = b.clone();
          others.narrow(1, first, lora.rank).zero_();
          TRIREME_CHECK(!in_blocks || !others.any().item<bool>(), "lora.rank is ", lora.rank,
                        ", and ", stored_b, " of ", folder_.string(), " adds ", b.size(1),
                        " ranks to each of its layers; set it to that");
          return b.narrow(1, first, lora.rank).contiguous();
        });
    if (in_blocks) first += lora.rank;
  }
  if (lora.dora) add_magnitudes(matrix);
}

void PeftAdapters::check_scale(const std::string& stored_a, const model::AdapterConfig& lora,
                               double scale) const {
  TRIREME_CHECK(std::abs(scale - lora.scale()) <= 1e-9 * scale, "lora.alpha / lora.rank is ",
                lora.scale(), ", and by ", (folder_ / kPeftConfig).string(), " ", stored_a,
                " is scaled by ", scale, "; set lora.alpha to ",
                scale * static_cast<double>(lora.rank));
}

void PeftAdapters::add_stack(const PeftStack& stack, const model::AdapterConfig& lora,
                             double scale) {
  const std::string layer = kPeftPrefix + stack.module;
  const std::string stored_a = layer + model::kAdapterA, stored_b = layer + model::kAdapterB;
  const checkpoint::SourceTensor& a = adapter_->tensors().at(stored_a);
  const int64_t rows = a.shape.empty() ? 0 : a.shape[0], E = stack.experts;
  TRIREME_CHECK(rows == lora.rank * E, "lora.rank is ", lora.rank, " and ", stored_a, " of ",
                folder_.string(), " has ", rows, " rows for ", E, " experts; set it to ", rows / E);
  require(stored_a, {lora.rank * E, stack.in});
  require(stored_b, {stack.out, lora.rank * E});
  check_scale(stored_a, lora, scale);
  add(stack.name + model::kAdapterA, {E, lora.rank, stack.in}, [this, stored_a, E] {
    return read_finite(stored_a).unflatten(0, {E, -1});
  });
  for (size_t i = 0; i < stack.weights.size(); ++i) {
    add(stack.weights[i] + model::kAdapterB, {E, stack.out / std::ssize(stack.weights), lora.rank},
        [this, stored_b, &stack, i] { return stack.split_b(read_finite(stored_b))[i]; });
  }
}

void PeftAdapters::add_magnitudes(const PeftMatrix& matrix) {
  const std::string stored = kPeftPrefix + matrix.module() + kPeftMagnitude;
  require(stored, {matrix.out()});
  for (const size_t part : matrix.parts) {
    const std::string& weight = matrix.tensor.parts[part];
    add(module_of(weight) + model::kAdapterMagnitude, {matrix.rows_of(part).size},
        [this, stored, weight, &matrix, part] {
          HuggingFaceTensor tensor = matrix.tensor;  // of one column
          tensor.is_transposed = false;
          const at::Tensor whole = read_finite(stored).unsqueeze(1);
          tensor.shape = whole.sizes().vec();
          const at::Tensor magnitude =
              model::split_parts(tensor, whole, has_adjacent_pairs_)[part].squeeze(1);
          const at::Tensor lengths = base_->read(weight).to(at::kDouble).square().sum(1).sqrt();
          return (magnitude - lengths).to(magnitude.scalar_type());
        });
  }
}

void PeftAdapters::add(const std::string& name, at::IntArrayRef shape, Read read) {
  tensors_[name] = {adapter_->tensors().begin()->second.dtype, shape.vec()};
  reads_[name] = std::move(read);
}

void PeftAdapters::require(const std::string& stored, const std::vector<int64_t>& shape) const {
  const checkpoint::SourceTensor& found = adapter_->tensors().at(stored);
  if (found.shape == shape && c10::isFloatingType(found.dtype)) return;
  throw CheckpointError(concat("lora.init: ", stored, " of ", folder_.string(), " is ",
                               c10::toString(found.dtype), " ", at::IntArrayRef(found.shape),
                               " and should be a float of ", at::IntArrayRef(shape),
                               "; it is the adapter of another model"));
}

at::Tensor PeftAdapters::read_finite(const std::string& stored) const {
  at::Tensor values = adapter_->read(stored);
  train::require_finite(values, stored, folder_);
  return values;
}

at::Tensor PeftAdapters::read(const std::string& name) const {
  const auto own = reads_.find(name);
  return own == reads_.end() ? base_->read(name) : own->second().contiguous();
}

}  // namespace trireme::tasks
