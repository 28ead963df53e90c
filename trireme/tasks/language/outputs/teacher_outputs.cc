#include "trireme/tasks/language/outputs/teacher_outputs.h"

#include <charconv>
#include <span>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::tasks {

// Each sample has a checksum of each of its three tensors, which read() compares. So the whole file
// is never read at once, and no damage goes unseen. Reads go through InputFile and not a mapping: a
// file that someone cuts short while a run reads it ends the run with a line.

namespace {

namespace fs = std::filesystem;

// Far above what the roundings of fp32 leave, far below what other numbers would.
constexpr double kSumTolerance = 1e-3;
constexpr int64_t kMaxChecksums = 16;

[[noreturn]] void fail_file(const fs::path& path, const std::string& what) {
  throw CheckpointError(
      concat(path.string(), ": ", what, "; make it again with `trireme data outputs`"));
}

const char* name_of_split(OutputsOf data) {
  return data == OutputsOf::kTraining ? "training" : "validation";
}

std::map<std::string, std::string> parse_checksums(const JsonView& object) {
  std::map<std::string, std::string> checksums;
  for (const auto& [name, sum] : object.members()) checksums[name] = sum.word();
  if (std::ssize(checksums) > kMaxChecksums) object.fail("fewer checksums");
  return checksums;
}

OutputsOrigin parse_origin(const std::string& text, const std::string& where) {
  const nlohmann::json json = parse_json(text, where);
  const JsonView about(json, where);
  return {.vocab_size = about.at("vocab_size").integer(1, kMaxVocabulary),
          .sequence_length = about.at("sequence_length").integer(1, kMaxSequence),
          .temperature = about.at("temperature").number(0),
          .packing = about.at("packing").word(),
          .separate_documents = about.at("separate_documents").boolean(),
          .model = about.at("model").word(),
          .teacher = parse_checksums(about.at("teacher")),
          .training = parse_checksums(about.at("training")),
          .validation = parse_checksums(about.at("validation"))};
}

// The parts of which one has another checksum: "index, tokens".
std::string differing_parts(const std::map<std::string, std::string>& a,
                            const std::map<std::string, std::string>& b) {
  std::map<std::string, std::string> all = a;
  all.insert(b.begin(), b.end());
  std::string names;
  for (const auto& [name, sum] : all) {
    const auto in_a = a.find(name), in_b = b.find(name);
    if (in_a == a.end() || in_b == b.end() || in_a->second != in_b->second)
      names += (names.empty() ? "" : ", ") + shown(name);
  }
  return names;
}

// Why the numbers of a sample are no distributions over the vocabulary; "" if they are.
std::string reason_against(const SampleOutputs& sample, int64_t vocab_size) {
  const at::Tensor& tokens_Tk = sample.tokens_NTk;
  const int64_t k = tokens_Tk.size(1);
  const bool ascends =
      tokens_Tk.narrow(1, 1, k - 1).gt(tokens_Tk.narrow(1, 0, k - 1)).all().item<bool>();
  const bool is_inside = tokens_Tk.ge(0).logical_and(tokens_Tk.lt(vocab_size)).all().item<bool>();
  if (!ascends || !is_inside) return concat("tokens that do not ascend within ", vocab_size);
  if (!sample.log_p_NTk.isfinite().all().item<bool>())
    return "log-probabilities that are not finite";
  const at::Tensor rest_T = sample.log_rest_NT.to(at::kDouble).exp();
  const at::Tensor sum_T = sample.log_p_NTk.to(at::kDouble).exp().sum(1) + rest_T;
  // Not below, so that NaN is a reason too.
  if (!(sum_T - 1).abs().le(kSumTolerance).all().item<bool>()) {
    return "probabilities that do not sum up to 1";
  }
  if (k == vocab_size && rest_T.any().item<bool>()) return "more than all tokens";
  return "";
}

}  // namespace

std::string outputs_tensor(OutputsOf data, const std::string& part) {
  return concat(name_of_split(data), ".", part);
}

int64_t outputs_checksum(std::span<const std::byte> bytes) {
  const std::string digits = checksum(bytes);
  uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return static_cast<int64_t>(number);
}

std::string to_json(const OutputsOrigin& origin) {
  return nlohmann::json{{"vocab_size", origin.vocab_size},
                        {"sequence_length", origin.sequence_length},
                        {"temperature", origin.temperature},
                        {"packing", origin.packing},
                        {"separate_documents", origin.separate_documents},
                        {"model", origin.model},
                        {"teacher", origin.teacher},
                        {"training", origin.training},
                        {"validation", origin.validation}}
      .dump();
}

TeacherOutputs::TeacherOutputs(const fs::path& path) : file_(path) {
  const checkpoint::SafetensorsReader file(path);
  const auto text_of = [&](const char* key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  if (text_of("format") != kOutputsFormat) {
    fail_file(path, concat("no outputs of a teacher: metadata \"format\" is ",
                           in_quotes(text_of("format")), ", expected \"", kOutputsFormat, "\""));
  }
  try {
    origin_ = parse_origin(text_of("origin"), path.string() + ", origin");
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
  if (!(origin_.temperature > 0)) fail_file(path, "the temperature is 0, expected more");
  header_checksum_ = checksum(file.header());
  const checkpoint::TensorInfo* const tokens = file.find("training.tokens");
  top_k_ = tokens != nullptr && tokens->shape.size() == 3 ? tokens->shape[2] : 0;
  if (top_k_ < 1 || top_k_ > origin_.vocab_size) {
    fail_file(path, concat("\"training.tokens\" is of ", top_k_, " tokens for each; expected 1 to ",
                           origin_.vocab_size));
  }
  std::optional<Split> training = find_split(file, "training");
  if (!training) fail_file(path, "there are no outputs of training data");
  training_ = *std::move(training);
  if (!origin_.validation.empty()) validation_ = find_split(file, "validation");
  if (!origin_.validation.empty() && !validation_) {
    fail_file(path, "there are no outputs of validation data");
  }
}

std::optional<TeacherOutputs::Split> TeacherOutputs::find_split(
    const checkpoint::SafetensorsReader& file, const std::string& name) {
  const checkpoint::TensorInfo* const sums = file.find(name + ".checksums");
  if (sums == nullptr) return std::nullopt;
  const auto wrong = [&](const std::string& tensor) {
    fail_file(file_.path(), concat("\"", name, ".", tensor, "\" is missing or of another shape"));
  };
  if (sums->dtype != at::kLong || sums->shape.size() != 2 || sums->shape[1] != 3 ||
      sums->shape[0] < 1) {
    wrong("checksums");
  }
  Split split{.num_samples = sums->shape[0]};
  const int64_t N = split.num_samples, T = origin_.sequence_length;
  for (size_t i = 0; i < split.parts.size(); ++i) {
    const checkpoint::TensorInfo* const part = file.find(concat(name, ".", kOutputsParts[i]));
    std::vector<int64_t> shape = {N, T};
    if (i < 2) shape.push_back(top_k_);
    const bool is_number =
        part != nullptr && (part->dtype == at::kFloat || part->dtype == at::kDouble);
    if (part == nullptr || part->shape != shape ||
        !(i == 0 ? part->dtype == at::kInt : is_number)) {
      wrong(kOutputsParts[i]);
    }
    split.parts[i] = {.begin = file.header().size() + part->begin,
                      .sample_bytes = (part->end - part->begin) / static_cast<uint64_t>(N),
                      .dtype = part->dtype};
  }
  if (split.parts[1].dtype != split.parts[2].dtype) wrong(kOutputsParts[2]);
  const at::Tensor checksums = file.read(name + ".checksums");
  const int64_t* const first = checksums.const_data_ptr<int64_t>();
  split.checksums.assign(first, first + checksums.numel());
  return split;
}

int64_t TeacherOutputs::num_samples(OutputsOf data) const {
  if (data == OutputsOf::kTraining) return training_.num_samples;
  return validation_ ? validation_->num_samples : 0;
}

double TeacherOutputs::bytes_per_sample() const {
  const auto size = static_cast<double>(c10::elementSize(training_.parts[1].dtype));
  const auto T = static_cast<double>(origin_.sequence_length);
  return T * (static_cast<double>(top_k_) * (8 + size) + size);
}

void TeacherOutputs::require_origin(const OutputsOrigin& run) const {
  const std::string key = concat("objective.teacher ", file_.path().string(), " has outputs ");
  const std::string advice = "make others with `trireme data outputs`, or ";
  TRIREME_CHECK(origin_.vocab_size == run.vocab_size, key, "over a vocabulary of ",
                origin_.vocab_size, " tokens, and the model has ", run.vocab_size, "; ", advice,
                "set model.vocab_size to ", origin_.vocab_size, " if the tokenizer has no more");
  TRIREME_CHECK(origin_.sequence_length == run.sequence_length, key, "of sequences of ",
                origin_.sequence_length, " tokens, and model.sequence_length is ",
                run.sequence_length, "; ", advice, "set it to ", origin_.sequence_length);
  TRIREME_CHECK(origin_.temperature == run.temperature, key, "at the temperature ",
                origin_.temperature, ", and objective.temperature is ", run.temperature, "; ",
                advice, "set it to ", origin_.temperature);
  TRIREME_CHECK(
      origin_.packing == run.packing && origin_.separate_documents == run.separate_documents, key,
      "with data.packing \"", origin_.packing, "\" and data.separate_documents ",
      origin_.separate_documents, ", and the run has \"", run.packing, "\" and ",
      run.separate_documents, "; ", advice, "set both so");
  TRIREME_CHECK(origin_.training == run.training, key,
                "of other data than the run: ", differing_parts(origin_.training, run.training),
                " differ; ", advice, "bring back the data that they were made from");
  if (run.validation.empty()) return;
  TRIREME_CHECK(!origin_.validation.empty(), key,
                "of training data only, and train.evaluate_interval is set; ", advice,
                "set it to 0");
  TRIREME_CHECK(origin_.validation == run.validation, key,
                "of other validation data: ", differing_parts(origin_.validation, run.validation),
                " differ; ", advice, "bring back the data that they were made from");
}

SampleOutputs TeacherOutputs::read(OutputsOf data, int64_t index) const {
  const Split& split = data == OutputsOf::kTraining ? training_ : validation_.value();
  TRIREME_ASSERT(index >= 0 && index < split.num_samples, "sample ", index, " of ",
                 split.num_samples);
  const auto where = [&] {
    return concat(file_.path().string(), ", ", name_of_split(data), " sample ", index);
  };
  std::array<at::Tensor, 3> found;
  for (size_t i = 0; i < found.size(); ++i) {
    const Part& part = split.parts[i];
    std::vector<int64_t> shape = {origin_.sequence_length};
    if (i < 2) shape.push_back(top_k_);
    found[i] = at::empty(shape, part.dtype);
    TRIREME_ASSERT(found[i].nbytes() == part.sample_bytes, part.sample_bytes, " bytes of a sample");
    auto* const begin = static_cast<std::byte*>(found[i].mutable_data_ptr());
    file_.read(part.begin + static_cast<uint64_t>(index) * part.sample_bytes,
               {begin, part.sample_bytes});
    TRIREME_CHECK(outputs_checksum({begin, part.sample_bytes}) ==
                      split.checksums[static_cast<size_t>(index) * 3 + i],
                  where(), ": \"", kOutputsParts[i],
                  "\" has another checksum, so the file is damaged; make it again with `trireme "
                  "data outputs`");
  }
  SampleOutputs sample{found[0].to(at::kLong), found[1], found[2]};
  const std::string reason = reason_against(sample, origin_.vocab_size);
  TRIREME_CHECK(reason.empty(), where(), " has ", reason,
                "; make the file again with `trireme data outputs`");
  return sample;
}

train::DataIdentity TeacherOutputs::identity() const {
  std::string sums = header_checksum_;
  const auto add = [&](const Split& split) {
    sums += checksum(std::as_bytes(std::span(split.checksums)));
  };
  add(training_);
  if (validation_) add(*validation_);
  return {.checksums = {{"outputs", checksum(std::as_bytes(std::span(sums)))}}};
}

std::string TeacherOutputs::description() const {
  return concat("outputs of ", origin_.model, ": ", top_k_, " of ", origin_.vocab_size,
                " tokens, of ", file_.path().string());
}

dataset::NamedTensors TaughtSource::get(int64_t index,
                                        std::optional<RandomKey> augmentation) const {
  dataset::NamedTensors sample = source_->get(index, augmentation);
  SampleOutputs outputs = outputs_->read(data_, index);
  sample.emplace_back(kTeacherTokens, std::move(outputs.tokens_NTk));
  sample.emplace_back(kTeacherLogP, std::move(outputs.log_p_NTk));
  sample.emplace_back(kTeacherLogRest, std::move(outputs.log_rest_NT));
  return sample;
}

}  // namespace trireme::tasks
