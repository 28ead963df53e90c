#include "trireme/tasks/language/outputs/outputs_writer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::tasks {
namespace {

constexpr const char* kChecksums = "checksums";

}  // namespace

OutputsWriter::OutputsWriter(const std::filesystem::path& path, const OutputsOrigin& origin,
                             const Shape& shape)
    : path_(path), dtype_(shape.dtype) {
  plan(origin, shape);
  open(0);
}

OutputsWriter::OutputsWriter(const std::filesystem::path& path, const OutputsOrigin& origin,
                             const Shape& shape, const Kept& kept)
    : path_(path), dtype_(shape.dtype) {
  plan(origin, shape);
  const std::string all = header_ + kept.computed;
  place_ = dataset::PreparationPlace{.work = kept.work,
                                     .identity = digest_of(std::as_bytes(std::span(all)))};
  const bool goes_on = dataset::go_on_from_journal(*place_, [&](const JsonView& journal) {
    open(static_cast<uint64_t>(journal.at("bytes").integer(std::ssize(header_))));
    for (auto& [data, num] : num_written_) {
      const int64_t most = data == OutputsOf::kTraining ? shape.num_training : shape.num_validation;
      num = journal.at(outputs_tensor(data, "samples")).integer(0, most);
    }
  });
  if (goes_on) return;
  for (auto& [data, num] : num_written_) num = 0;
  open(0);
}

void OutputsWriter::plan(const OutputsOrigin& origin, const Shape& shape) {
  const int64_t T = origin.sequence_length, k = shape.top_k;
  const auto add = [&](OutputsOf data, int64_t N) {
    if (N == 0) return;
    const std::string name = outputs_tensor(data, "");
    tensors_.push_back({.name = name + kChecksums, .dtype = at::kLong, .shape = {N, 3}});
    tensors_.push_back({.name = name + kOutputsParts[1], .dtype = dtype_, .shape = {N, T, k}});
    tensors_.push_back({.name = name + kOutputsParts[2], .dtype = dtype_, .shape = {N, T}});
    tensors_.push_back({.name = name + kOutputsParts[0], .dtype = at::kInt, .shape = {N, T, k}});
  };
  add(OutputsOf::kTraining, shape.num_training);
  add(OutputsOf::kValidation, shape.num_validation);
  // Larger elements first, so every tensor is aligned.
  std::ranges::stable_sort(tensors_, std::greater{}, [](const checkpoint::TensorInfo& info) {
    return c10::elementSize(info.dtype);
  });
  uint64_t at = 0;
  for (checkpoint::TensorInfo& info : tensors_) {
    info.begin = at;
    info.end = at +=
        static_cast<uint64_t>(c10::multiply_integers(info.shape)) * c10::elementSize(info.dtype);
  }
  header_ = checkpoint::safetensors_header(
      tensors_, {{"format", kOutputsFormat}, {"origin", to_json(origin)}}, path_);
}

// With the first bytes of a file that an interrupted writer left; 0: a new one.
void OutputsWriter::open(uint64_t num_bytes) {
  if (place_) {
    file_.emplace(path_, AtomicFile::Continued{place_->folder() / "outputs", num_bytes});
  } else {
    file_.emplace(path_);
  }
  if (num_bytes == 0) file_->write(header_);
  file_bytes_ = std::max(num_bytes, uint64_t{header_.size()});
  descriptor_ = Descriptor(::open(file_->temporary().c_str(), O_WRONLY | O_CLOEXEC));
  if (!descriptor_.is_open()) {
    throw Error(concat("cannot write ", file_->temporary().string(), ": ", std::strerror(errno)));
  }
}

const checkpoint::TensorInfo& OutputsWriter::find(OutputsOf data, const std::string& part) const {
  const auto info =
      std::ranges::find(tensors_, outputs_tensor(data, part), &checkpoint::TensorInfo::name);
  TRIREME_ASSERT(info != tensors_.end(), "no samples of ", outputs_tensor(data, part));
  return *info;
}

void OutputsWriter::write_rows(OutputsOf data, const std::string& part, int64_t first,
                               const at::Tensor& rows) {
  const checkpoint::TensorInfo& info = find(data, part);
  TRIREME_ASSERT(first + rows.size(0) <= info.shape[0], "samples ", first, " to ",
                 first + rows.size(0));
  const uint64_t row_bytes = (info.end - info.begin) / static_cast<uint64_t>(info.shape[0]);
  const uint64_t begin = header_.size() + info.begin + static_cast<uint64_t>(first) * row_bytes;
  const auto* bytes = static_cast<const char*>(rows.const_data_ptr());
  for (size_t done = 0; done < rows.nbytes();) {
    const ssize_t wrote = ::pwrite(descriptor_.get(), bytes + done, rows.nbytes() - done,
                                   static_cast<off_t>(begin + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      throw Error(
          concat("cannot write ", path_.string(), ": ", std::strerror(wrote < 0 ? errno : ENOSPC)));
    }
    done += static_cast<size_t>(wrote);
  }
  file_bytes_ = std::max(file_bytes_, begin + rows.nbytes());
}

void OutputsWriter::write(OutputsOf data, int64_t first, const SampleOutputs& outputs) {
  const std::array<at::Tensor, 3> values = {outputs.tokens_NTk.to(at::kInt).contiguous(),
                                            outputs.log_p_NTk.to(dtype_).contiguous(),
                                            outputs.log_rest_NT.to(dtype_).contiguous()};
  const int64_t N = values[0].size(0);
  const at::Tensor checksums_N3 = at::empty({N, 3}, at::kLong);
  for (size_t i = 0; i < values.size(); ++i) {
    write_rows(data, kOutputsParts[i], first, values[i]);
    for (int64_t n = 0; n < N; ++n) {
      const at::Tensor sample = values[i][n];
      checksums_N3[n][static_cast<int64_t>(i)] = outputs_checksum(
          {static_cast<const std::byte*>(sample.const_data_ptr()), sample.nbytes()});
    }
  }
  write_rows(data, kChecksums, first, checksums_N3);
  int64_t& num_written = num_written_.at(data);
  if (first <= num_written) num_written = std::max(num_written, first + N);
}

void OutputsWriter::keep() {
  TRIREME_ASSERT(place_.has_value(), "no work folder");
  file_->sync();
  nlohmann::json journal = {{"bytes", file_bytes_}};
  for (const auto& [data, num] : num_written_) journal[outputs_tensor(data, "samples")] = num;
  dataset::write_journal(*place_, journal);
}

uint64_t OutputsWriter::finish() {
  file_->commit();
  return header_.size() + tensors_.back().end;
}

}  // namespace trireme::tasks
