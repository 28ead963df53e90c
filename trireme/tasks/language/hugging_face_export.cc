#include "trireme/tasks/language/hugging_face_export.h"

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/foreign/dcp_writer.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/tensor_boxes.h"
#include "trireme/dataset/bpe.h"
#include "trireme/dataset/tokenizer.h"
#include "trireme/model/hugging_face.h"
#include "trireme/tasks/language/adapter_export.h"
#include "trireme/tasks/language/export_source.h"
#include "trireme/tasks/language/foreign/class_labels.h"
#include "trireme/tasks/language/foreign/foreign_model.h"
#include "trireme/tasks/language/foreign/imported_files.h"
#include "trireme/tasks/language/foreign/peft_form.h"
#include "trireme/tasks/language/trained_model.h"
#include "trireme/train/state/run_state.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;
using model::HuggingFaceTensor;
using nlohmann::ordered_json;

// A part of a transposed tensor is a range of columns of the stored one, which is read whole for
// each part.
constexpr uint64_t kTransposedPartBytes = uint64_t{256} << 20;

checkpoint::TensorParts parts_of(const HuggingFaceTensor& tensor, c10::ScalarType dtype) {
  return {tensor.shape, c10::elementSize(dtype),
          tensor.is_transposed ? kTransposedPartBytes : checkpoint::kPartBytes};
}

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

void write_weights(const fs::path& path, Tensors tensors, ExportSource& source,
                   c10::ScalarType dtype) {
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
    const checkpoint::TensorParts parts = parts_of(tensor, dtype);
    for (int64_t i = 0; i < parts.size(); ++i) {
      const at::Tensor values = source.read(tensor, parts.at(i));
      write_or_explain([&] { writer->write_part(values); });
    }
  }
  write_or_explain([&] { writer->finish(/*fsync=*/true); });
}

void write_dcp(const fs::path& folder, Tensors tensors, ExportSource& source,
               c10::ScalarType dtype) {
  std::vector<std::pair<std::string, checkpoint::SourceTensor>> infos;
  for (const HuggingFaceTensor& tensor : tensors)
    infos.emplace_back(tensor.name,
                       checkpoint::SourceTensor{.dtype = dtype, .shape = tensor.shape});
  std::map<std::string, const HuggingFaceTensor*> by_name;
  for (const HuggingFaceTensor& tensor : tensors) by_name[tensor.name] = &tensor;
  checkpoint::write_dcp(folder, infos, [&](const std::string& name, const mesh::Box& part) {
    return source.read(*by_name.at(name), part);
  });
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

// One that changes text is used as it was trained, which the class of T5 does.
void write_lossy_tokenizer(const fs::path& folder, const dataset::Tokenizer& tokenizer) {
  const std::string text = tokenizer.serialize();
  const dataset::BpeSpecialPieces pieces = dataset::bpe_special_pieces(text);
  write_file_atomically(folder / "spiece.model", text);
  write_json(folder / "tokenizer_config.json", {{"tokenizer_class", "T5Tokenizer"},
                                                {"extra_ids", 0},
                                                {"eos_token", pieces.end_of_document},
                                                {"unk_token", pieces.unknown}});
}

void write_tokenizer(const fs::path& folder, const dataset::Tokenizer& tokenizer) {
  const bool is_bpe = tokenizer.kind() == dataset::TokenizerKind::kBpe;
  if (is_bpe && tokenizer.unknown_token()) return write_lossy_tokenizer(folder, tokenizer);
  switch (tokenizer.kind()) {
    case dataset::TokenizerKind::kBytes: return;  // transformers has no such one
    case dataset::TokenizerKind::kBpe: return write_bpe_tokenizer(folder, tokenizer);
    case dataset::TokenizerKind::kJson: return write_json_tokenizer(folder, tokenizer);
  }
}

// All but the weights. checkpoint: that is exported
void write_beside(const fs::path& target, const fs::path& checkpoint,
                  const model::ModelConfig& shape, const dataset::Tokenizer* tokenizer,
                  HuggingFaceExport& report) {
  const ImportedFiles imported(checkpoint);
  const std::string config = imported.config();
  const bool belong = imported.belong_to(tokenizer);
  if (belong) {
    report.imported_files = imported.write_to(target);
  } else {
    report.note =
        "the run has another tokenizer than the imported model, whose token ids and chat template "
        "are left out";
  }
  const bool is_kept = belong && !config.empty();
  std::string kept =
      is_kept ? model::kept_keys(config, "the imported config.json", shape) : std::string();
  write_file_atomically(
      target / "config.json",
      model::hugging_face_config(
          shape, report.dtype,
          tokenizer != nullptr ? std::optional<int64_t>(tokenizer->end_of_document())
                               : std::nullopt,
          shape.classes > 0 ? with_labels(checkpoint, std::move(kept)) : kept));
  const bool has_tokenizer = belong && imported.has_tokenizer();
  if (tokenizer != nullptr && !has_tokenizer) write_tokenizer(target, *tokenizer);
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
  if (options.form == ExportForm::kPeft) {
    ExportSource adapters(folder, manifest, report.dtype, options.weights);
    NewFolder target(output);
    const std::string base =
        is_hugging_face_folder(config.init.folder) ? config.init.folder : std::string();
    const AdapterExport written =
        write_adapters(target.path(), shape, base, adapters, report.dtype);
    target.commit();
    report.num_tensors = written.num_tensors;
    report.num_parameters = written.num_parameters;
    report.num_bytes =
        written.num_parameters * static_cast<int64_t>(c10::elementSize(report.dtype));
    report.files = {kPeftWeights};
    return report;
  }
  ExportSource source(folder, manifest, report.dtype, options.weights, adapters_of(shape));
  for (const HuggingFaceTensor& tensor : tensors) {
    source.check(tensor);
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
  if (options.form == ExportForm::kHuggingFace)
    write_beside(target.path(), folder, shape, tokenizer.get(), report);
  target.commit();
  return report;
}

}  // namespace trireme::tasks
