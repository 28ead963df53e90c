#include "trireme/tasks/language/hugging_face_export.h"

#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/new_folder.h"
#include "trireme/checkpoint/foreign/dcp_writer.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/shards.h"
#include "trireme/dataset/bpe.h"
#include "trireme/dataset/json_tokenizer.h"
#include "trireme/model/hugging_face.h"
#include "trireme/tasks/language/trained_model.h"
#include "trireme/train/optimizer/optimizer.h"
#include "trireme/train/state/saved_run.h"
#include "trireme/train/state/state.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;
using model::HuggingFaceTensor;
using nlohmann::ordered_json;

// The name that checkpoint_entries() gives a parameter's master weights.
std::string master_of(const std::string& parameter) {
  return concat(train::kOptimizerPrefix, train::kMasterState, ".", parameter);
}

// A checkpoint's tensors, converted to one dtype.
class Source {
 public:
  Source(fs::path folder, const checkpoint::Manifest& manifest, c10::ScalarType dtype,
         train::Weights weights)
      : folder_(std::move(folder)), manifest_(manifest), dtype_(dtype), weights_(weights) {}

  // Whether the optimizer's fp32 weights are more exact, because `dtype` differs from the run's.
  bool has_better_master(const std::string& parameter) const {
    if (weights_ == train::Weights::kAverage) return false;  // in fp32 themselves
    const auto found = manifest_.tensors.find(parameter);
    return found != manifest_.tensors.end() && found->second.dtype != dtype_ &&
           manifest_.tensors.contains(master_of(parameter));
  }

  at::Tensor read(const HuggingFaceTensor& tensor) {
    // Slices of a parameter follow each other, so it is read once.
    if (tensor.parts != last_names_) {
      last_parts_.clear();
      for (const std::string& name : tensor.parts) last_parts_.push_back(read_part(name));
      last_names_ = tensor.parts;
    }
    return model::join_parts(tensor, last_parts_);
  }

 private:
  at::Tensor read_part(const std::string& name) const {
    const std::string stored =
        has_better_master(name) ? master_of(name) : train::tensor_of(name, weights_);
    const at::Tensor values = checkpoint::read_tensor(folder_, manifest_, stored);
    train::require_finite(values, stored, folder_);
    return train::in_dtype(values, dtype_, stored);
  }

  fs::path folder_;
  const checkpoint::Manifest& manifest_;
  c10::ScalarType dtype_;
  train::Weights weights_;
  std::vector<std::string> last_names_;
  std::vector<at::Tensor> last_parts_;
};

using Tensors = std::span<const HuggingFaceTensor>;

int64_t num_elements(const HuggingFaceTensor& tensor) {
  return c10::multiply_integers(tensor.shape);
}

// Cuts the tensors in order, as many per file as fit.
std::vector<Tensors> cut_into_files(Tensors tensors, int64_t max_elements) {
  std::vector<Tensors> files;
  size_t begin = 0;
  int64_t elements = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t more = num_elements(tensors[i]);
    if (i > begin && elements + more > max_elements) {
      files.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      elements = 0;
    }
    elements += more;
  }
  files.push_back(tensors.subspan(begin));
  return files;
}

std::string file_name(size_t index, size_t num_files) {
  if (num_files == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", index + 1, num_files);
  return name;
}

// Runs `action`, which writes, and adds advice to a failure.
template <typename Action>
auto write_or_explain(Action action) {
  try {
    return action();
  } catch (const CheckpointError&) {
    throw;  // the format does not allow the tensors' names or shapes
  } catch (const Error& error) {
    throw Error(concat(error.what(), ": make room, or choose another output folder"));
  }
}

void write_weights(const fs::path& path, Tensors tensors, Source& source, c10::ScalarType dtype) {
  std::vector<checkpoint::TensorInfo> infos;
  for (const HuggingFaceTensor& tensor : tensors) {
    infos.push_back({.name = tensor.name, .dtype = dtype, .shape = tensor.shape});
  }
  // transformers refuses files that do not name the framework of their tensors.
  auto writer = write_or_explain([&] {
    return std::make_unique<checkpoint::SafetensorsWriter>(
        path, std::move(infos), std::map<std::string, std::string>{{"format", "pt"}});
  });
  // All have one dtype, so the writer has kept their order.
  for (const HuggingFaceTensor& tensor : tensors) {
    const at::Tensor values = source.read(tensor);
    write_or_explain([&] { writer->write(values); });
  }
  write_or_explain([&] { writer->finish(/*fsync=*/true); });
}

// write_dcp() asks for the tensors in their order.
void write_dcp(const fs::path& folder, Tensors tensors, Source& source, c10::ScalarType dtype) {
  std::vector<std::pair<std::string, checkpoint::SourceTensor>> infos;
  for (const HuggingFaceTensor& tensor : tensors)
    infos.emplace_back(tensor.name,
                       checkpoint::SourceTensor{.dtype = dtype, .shape = tensor.shape});
  size_t next = 0;
  checkpoint::write_dcp(folder, infos,
                        [&](const std::string&) { return source.read(tensors[next++]); });
}

void write_json(const fs::path& path, const ordered_json& object) {
  write_file_atomically(path, object.dump(2) + "\n");
}

void write_index(const fs::path& folder, std::span<const Tensors> files,
                 const HuggingFaceExport& report) {
  ordered_json index = {
      {"metadata", {{"total_parameters", report.num_parameters}, {"total_size", report.num_bytes}}},
      {"weight_map", ordered_json::object()}};
  for (size_t i = 0; i < files.size(); ++i) {
    for (const HuggingFaceTensor& tensor : files[i]) {
      index["weight_map"][tensor.name] = report.files[i];
    }
  }
  write_json(folder / "model.safetensors.index.json", index);
}

// Without a class transformers would choose one by the model's family.
void write_json_tokenizer(const fs::path& folder, const dataset::Tokenizer& tokenizer) {
  const std::string text = tokenizer.serialize();
  write_file_atomically(folder / "tokenizer.json", text);
  write_json(folder / "tokenizer_config.json",
             {{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"eos_token", dataset::spelled_end_of_document(text, tokenizer.end_of_document())},
              {"clean_up_tokenization_spaces", false}});
}

void write_bpe_tokenizer(const fs::path& folder, const dataset::Tokenizer& tokenizer) {
  const std::string text = tokenizer.serialize();
  const dataset::BpeSpecialPieces pieces = dataset::bpe_special_pieces(text);
  write_file_atomically(folder / "tokenizer.model", text);
  // Otherwise transformers would choose the class by the model's family, put a space before every
  // text, add tokens that the vocabulary lacks, and treat "</s>" in a text as the token.
  write_json(folder / "tokenizer_config.json", {{"tokenizer_class", "LlamaTokenizer"},
                                                {"legacy", false},
                                                {"add_prefix_space", false},
                                                {"add_bos_token", false},
                                                {"add_eos_token", false},
                                                {"split_special_tokens", true},
                                                {"bos_token", nullptr},
                                                {"eos_token", pieces.end_of_document},
                                                {"unk_token", pieces.unknown},
                                                {"clean_up_tokenization_spaces", false}});
}

void write_tokenizer(const fs::path& folder, const dataset::Tokenizer& tokenizer) {
  switch (tokenizer.kind()) {
    case dataset::TokenizerKind::kBytes: return;  // transformers has no such one
    case dataset::TokenizerKind::kBpe: return write_bpe_tokenizer(folder, tokenizer);
    case dataset::TokenizerKind::kJson: return write_json_tokenizer(folder, tokenizer);
  }
}

}  // namespace

HuggingFaceExport export_to_hugging_face(const fs::path& path, const fs::path& output,
                                         const HuggingFaceExportOptions& options) {
  TRIREME_CHECK(options.max_shard_bytes > 0, "max_shard_size = ", options.max_shard_bytes,
                " bytes; expected at least 1, such as 5GB: raise it");
  const fs::path folder = train::find_checkpoint(path);
  const checkpoint::Manifest manifest = checkpoint::read_manifest(folder);
  train::require_weights(options.weights, manifest.state, folder);
  const train::RunConfig config = saved_language_config(
      train::parse_state(manifest.state, folder.string(), manifest.step).config, folder);
  const model::ModelConfig& shape = language_of(config).model;
  const std::vector<HuggingFaceTensor> tensors = model::hugging_face_tensors(shape);
  const auto tokenizer = find_tokenizer(folder, config);

  HuggingFaceExport report{.checkpoint = folder,
                           .step = manifest.step,
                           .architecture = model::hugging_face_architecture(shape),
                           .dtype = options.dtype.value_or(config.dtype()),
                           .num_tensors = std::ssize(tensors)};
  if (tokenizer) report.tokenizer = tokenizer->kind();
  Source source(folder, manifest, report.dtype, options.weights);
  for (const HuggingFaceTensor& tensor : tensors) {
    report.num_parameters += num_elements(tensor);
    report.from_masters |= source.has_better_master(tensor.parts[0]);
  }
  const auto itemsize = static_cast<int64_t>(c10::elementSize(report.dtype));
  report.num_bytes = report.num_parameters * itemsize;

  if (options.form == ExportForm::kDcp) {
    write_dcp(output, tensors, source, report.dtype);
    report.files = {checkpoint::kDcpFile, checkpoint::kDcpMetadata};
    return report;
  }
  NewFolder target(output);
  const auto files = cut_into_files(tensors, options.max_shard_bytes / itemsize);
  for (size_t i = 0; i < files.size(); ++i) {
    report.files.push_back(file_name(i, files.size()));
    write_weights(target.path() / report.files[i], files[i], source, report.dtype);
  }
  if (files.size() > 1) write_index(target.path(), files, report);
  if (options.form == ExportForm::kHuggingFace) {
    write_file_atomically(
        target.path() / "config.json",
        model::hugging_face_config(
            shape, report.dtype,
            tokenizer ? std::optional<int64_t>(tokenizer->end_of_document()) : std::nullopt));
    if (tokenizer) write_tokenizer(target.path(), *tokenizer);
  }
  target.commit();
  return report;
}

}  // namespace trireme::tasks
