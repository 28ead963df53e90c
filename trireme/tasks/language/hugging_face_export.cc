#include "trireme/tasks/language/hugging_face_export.h"

#include <memory>
#include <optional>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/dataset/bpe.h"
#include "trireme/dataset/tokenizer.h"
#include "trireme/model/hugging_face.h"
#include "trireme/tasks/export/export_input.h"
#include "trireme/tasks/export/export_source.h"
#include "trireme/tasks/export/model_card.h"
#include "trireme/tasks/export/weight_files.h"
#include "trireme/tasks/language/adapter_export.h"
#include "trireme/tasks/language/foreign/class_labels.h"
#include "trireme/tasks/language/foreign/foreign_model.h"
#include "trireme/tasks/language/foreign/imported_files.h"
#include "trireme/tasks/language/foreign/peft_form.h"
#include "trireme/tasks/language/trained_model.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;
using model::HuggingFaceTensor;
using nlohmann::ordered_json;

void write_json(const fs::path& path, const ordered_json& object) {
  write_file_atomically(path, object.dump(2) + "\n");
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
                  ExportReport& report) {
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

std::string language_card(const ExportInput& input, const train::RunConfig& config,
                          const ExportOptions& options, const ExportReport& report) {
  const model::ModelConfig& shape = language_of(config).model;
  return to_markdown(
      {.title = concat(shape.family, shape.classes > 0 ? " text classifier" : " language model"),
       .library = "transformers",
       .pipeline = shape.classes > 0     ? "text-classification"
                   : shape.has_decoder() ? "text2text-generation"
                   : shape.is_causal()   ? "text-generation"
                                         : "fill-mask",
       .license = options.license,
       .facts = facts_of(input, shape.family, options, report),
       .loading =
           concat("import transformers\n\nmodel = transformers.", report.architecture,
                  ".from_pretrained(\"FOLDER\")\n",
                  report.tokenizer && *report.tokenizer != dataset::TokenizerKind::kBytes
                      ? "tokenizer = transformers.AutoTokenizer.from_pretrained(\"FOLDER\")\n"
                      : "")});
}

}  // namespace

ExportReport export_to_hugging_face(const fs::path& path, const fs::path& output,
                                    const ExportOptions& options) {
  check_export(options);
  TRIREME_CHECK(options.form != ExportForm::kTimm && options.form != ExportForm::kDiffusers,
                path.string(), " is of a language model, and --format is \"",
                name_of(kExportForms, options.form),
                "\", which has models of images; expected hf, safetensors, dcp or peft");
  const ExportInput input(path, options);
  const fs::path& folder = input.folder;
  const checkpoint::Manifest& manifest = input.manifest;
  const train::RunConfig config = saved_language_config(input.state.config, folder);
  const model::ModelConfig& shape = language_of(config).model;
  const std::vector<HuggingFaceTensor> tensors = model::hugging_face_tensors(shape);
  const auto tokenizer = find_tokenizer(folder, config);

  ExportReport report{.checkpoint = folder,
                      .step = manifest.step,
                      .architecture = model::hugging_face_architecture(shape),
                      .dtype = options.dtype.value_or(config.dtype())};
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
  write_export(output, tensors, source, options, report, [&](const fs::path& target) {
    if (options.form != ExportForm::kHuggingFace) return;
    write_beside(target, folder, shape, tokenizer.get(), report);
    write_file_atomically(target / kCardFile, language_card(input, config, options, report));
  });
  return report;
}

}  // namespace trireme::tasks
