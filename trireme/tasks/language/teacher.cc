#include "trireme/tasks/language/teacher.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/tasks/language/foreign/foreign_model.h"
#include "trireme/tasks/language/foreign/imported_files.h"
#include "trireme/tasks/language/language.h"
#include "trireme/tasks/language/token_identity.h"
#include "trireme/tasks/language/trained_model.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNumSamples = 64;
constexpr uint64_t kSampleBytes = 4096;

struct Found {
  Teacher teacher;
  std::unique_ptr<dataset::Tokenizer> tokenizer;  // null: unknown
};

Found find_foreign(const fs::path& folder) {
  Found found{{open_foreign_model(folder).model.config, folder}, nullptr};
  std::string problem;
  found.tokenizer = read_foreign_tokenizer(folder, found.teacher.model.vocab_size, problem);
  return found;
}

Found find_run(const fs::path& folder) {
  const train::SavedModel saved(folder, train::Weights::kLast);
  const train::RunConfig config = saved_language_config(saved.config(), saved.folder());
  Found found{{language_of(config).model, saved.folder()}, find_tokenizer(saved.folder(), config)};
  found.teacher.model.lora.init.clear();  // the checkpoint has the adapters
  return found;
}

// Which file it is, its size, and a checksum of places spread over it: another model has other
// values everywhere, and reading a large file whole would take minutes.
std::string line_of(const fs::path& path) {
  const InputFile file(path);
  const uint64_t size = std::min(file.num_bytes(), kSampleBytes);
  std::vector<std::byte> bytes(kNumSamples * size);
  for (uint64_t i = 0; i < kNumSamples; ++i) {
    file.read((file.num_bytes() - size) / (kNumSamples - 1) * i,
              std::span(bytes).subspan(i * size, size));
  }
  return concat(path.filename().string(), " ", file.num_bytes(), " ", checksum(bytes), "\n");
}

bool has_tensors(const fs::path& file) {
  constexpr std::array kEndings = {".safetensors", ".bin", ".pt", ".pth"};
  return is_file(file) && std::ranges::count(kEndings, file.extension().string()) > 0;
}

}  // namespace

std::shared_ptr<const Teacher> open_teacher(const LanguageConfig& student,
                                            const dataset::Tokenizer& tokenizer) {
  const std::string& given = student.objective.teacher;
  const std::string key = concat("objective.teacher ", shown(given));
  std::error_code none;
  TRIREME_CHECK(
      fs::exists(given, none), key,
      " does not exist; expected a run, a checkpoint, a Hugging Face folder, or a file of "
      "its outputs");
  Found found;
  try {
    found = is_hugging_face_folder(given) ? find_foreign(given) : find_run(given);
  } catch (const CheckpointError& error) {
    throw CheckpointError(concat("objective.teacher: ", error.what()));
  } catch (const ConfigError& error) {
    throw ConfigError(concat("objective.teacher: ", error.what()));
  }
  const model::ModelConfig& model = found.teacher.model;
  TRIREME_CHECK(model.vocab_size == student.model.vocab_size, key, " has a vocabulary of ",
                model.vocab_size, " tokens and the model one of ", student.model.vocab_size,
                "; expected the same: choose another teacher, or set model.vocab_size to ",
                model.vocab_size, " if the tokenizer has no more");
  if (found.tokenizer) {
    const std::string difference = differing_token(*found.tokenizer, tokenizer);
    TRIREME_CHECK(difference.empty(), key, " has another tokenizer than the data: ", difference,
                  "; prepare the data with the teacher's tokenizer, or choose another teacher");
  }
  TRIREME_CHECK(model.is_causal(), key, " is of the family \"", model.family,
                "\", whose tokens read those behind them; choose a teacher that predicts the next "
                "token");
  TRIREME_CHECK(model.sequence_length >= student.model.sequence_length, key,
                " reads sequences of at most ", model.sequence_length,
                " tokens and model.sequence_length is ", student.model.sequence_length,
                "; set it to at most ", model.sequence_length);
  return std::make_shared<const Teacher>(std::move(found.teacher));
}

std::shared_ptr<const TeacherOutputs> open_outputs(const fs::path& path) {
  try {
    return std::make_shared<const TeacherOutputs>(path);
  } catch (const CheckpointError& error) {
    throw CheckpointError(concat("objective.teacher: ", error.what()));
  }
}

OutputsOrigin origin_of(const LanguageConfig& own, const train::DataIdentity& training,
                        const train::DataIdentity& validation) {
  std::map<std::string, std::string> of_samples = training.checksums;
  of_samples.erase(kSharesChecksum);  // however often a run reads them
  return {.vocab_size = own.model.vocab_size,
          .sequence_length = own.model.sequence_length,
          .temperature = own.objective.temperature,
          .packing = name_of(dataset::kPackings, own.data.packing),
          .separate_documents = own.data.separate_documents,
          .training = std::move(of_samples),
          .validation = validation.checksums};
}

train::DataIdentity identify_teacher(const Teacher& teacher) {
  const fs::path manifest = teacher.folder / checkpoint::kManifestName;
  if (is_file(manifest)) return {.checksums = {{"manifest", checksum(InputFile(manifest))}}};
  std::set<fs::path> files;
  for (const fs::directory_entry& item : fs::directory_iterator(teacher.folder)) {
    if (has_tensors(item.path())) files.insert(item.path());
  }
  std::string lines;
  for (const fs::path& file : files) lines += line_of(file);
  return {.checksums = {{"config", checksum(InputFile(teacher.folder / "config.json"))},
                        {"weights", checksum(std::as_bytes(std::span(lines)))}}};
}

}  // namespace trireme::tasks
