// What a teacher says of every token of a student's data, computed once (`trireme data outputs`)
// and kept in a file, so that training holds no teacher. Never trusts a file.
// Format: docs/design/teacher-outputs.md
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/file/file.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/dataset/source.h"
#include "trireme/train/task/data_identity.h"

namespace trireme::tasks {

// What the outputs are of.
struct OutputsOrigin {
  int64_t vocab_size = 0;
  int64_t sequence_length = 0;  // T
  double temperature = 1;
  std::string packing{};  // data.packing
  bool separate_documents = false;
  std::string model{};                              // the teacher, for people
  std::map<std::string, std::string> teacher{};     // checksums of its weights
  std::map<std::string, std::string> training{};    // checksums of the data, as DataIdentity has
  std::map<std::string, std::string> validation{};  // empty: no outputs of validation data
};

std::string to_json(const OutputsOrigin& origin);

enum class OutputsOf { kTraining, kValidation };

// In the file: what its metadata call it, the tensors of each part of the data, and a checksum of
// a sample's bytes in one of them.
inline constexpr const char* kOutputsFormat = "trireme teacher outputs 1";
inline constexpr const char* kOutputsParts[] = {"tokens", "log_probabilities", "log_rest"};
std::string outputs_tensor(OutputsOf data, const std::string& part);
int64_t outputs_checksum(std::span<const std::byte> bytes);

// The outputs of some samples. `names` are those of a batch's tensors.
struct SampleOutputs {
  at::Tensor tokens_NTk;   // int64, ascending
  at::Tensor log_p_NTk;    // fp32 or fp64
  at::Tensor log_rest_NT;  // the same
};
inline constexpr const char* kTeacherTokens = "teacher_tokens";
inline constexpr const char* kTeacherLogP = "teacher_log_p";
inline constexpr const char* kTeacherLogRest = "teacher_log_rest";

// Thread safety: const methods may be called from any thread.
class TeacherOutputs {
 public:
  // Reads the header.
  // Throws: CheckpointError when the file is cut short or its header says what cannot be
  explicit TeacherOutputs(const std::filesystem::path& path);

  const OutputsOrigin& origin() const { return origin_; }
  int64_t top_k() const { return top_k_; }
  int64_t num_samples(OutputsOf data) const;
  double bytes_per_sample() const;  // as read() gives them

  // Checks that they are of a run's data, read in the same way, and of its temperature.
  // Throws: ConfigError with what differs
  void require_origin(const OutputsOrigin& run) const;

  // Shapes: -> tokens [T, k], log_p [T, k], log_rest [T]
  // Throws: ConfigError with the path and the sample when its checksum is another, or its numbers
  //         are no distributions over the vocabulary
  SampleOutputs read(OutputsOf data, int64_t index) const;

  // A checksum of the header, and of the checksums of all samples.
  train::DataIdentity identity() const;
  // For people: "outputs of llama, 3 layers, ...: 32 of 49152 tokens, of outputs.safetensors".
  std::string description() const;

 private:
  struct Part {
    uint64_t begin = 0;  // in the file
    uint64_t sample_bytes = 0;
    at::ScalarType dtype = at::ScalarType::Float;
  };
  struct Split {
    int64_t num_samples = 0;
    std::array<Part, 3> parts{};       // tokens, log-probabilities, rest
    std::vector<int64_t> checksums{};  // three for each sample
  };

  std::optional<Split> find_split(const checkpoint::SafetensorsReader& file,
                                  const std::string& name);

  InputFile file_;
  OutputsOrigin origin_;
  std::string header_checksum_;
  int64_t top_k_ = 0;
  Split training_;
  std::optional<Split> validation_;
};

// The samples of another source, each with its outputs.
class TaughtSource : public dataset::Source {
 public:
  TaughtSource(std::shared_ptr<const dataset::Source> source,
               std::shared_ptr<const TeacherOutputs> outputs, OutputsOf data)
      : source_(std::move(source)), outputs_(std::move(outputs)), data_(data) {}

  const dataset::Source& without_outputs() const { return *source_; }
  int64_t size() const override { return source_->size(); }
  std::vector<int64_t> shard_sizes() const override { return source_->shard_sizes(); }
  const dataset::Blend* blend() const override { return source_->blend(); }
  dataset::NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override;

 private:
  std::shared_ptr<const dataset::Source> source_;
  std::shared_ptr<const TeacherOutputs> outputs_;
  OutputsOf data_;
};

// The samples on top of which a teacher's outputs are, if they are.
inline const dataset::Source* without_outputs(const dataset::Source* source) {
  const auto* const taught = dynamic_cast<const TaughtSource*>(source);
  return taught != nullptr ? &taught->without_outputs() : source;
}

}  // namespace trireme::tasks
