#include "trireme/tasks/language/outputs/outputs_writer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::tasks {

OutputsWriter::OutputsWriter(const std::filesystem::path& path, const OutputsOrigin& origin,
                             const Shape& shape)
    : path_(path), file_(path), dtype_(shape.dtype) {
  const int64_t T = origin.sequence_length, k = shape.top_k;
  const auto add = [&](OutputsOf data, int64_t N) {
    if (N == 0) return;
    const std::string name = outputs_tensor(data, "");
    tensors_.push_back({.name = name + "checksums", .dtype = at::kLong, .shape = {N, 3}});
    tensors_.push_back({.name = name + kOutputsParts[1], .dtype = dtype_, .shape = {N, T, k}});
    tensors_.push_back({.name = name + kOutputsParts[2], .dtype = dtype_, .shape = {N, T}});
    tensors_.push_back({.name = name + kOutputsParts[0], .dtype = at::kInt, .shape = {N, T, k}});
    checksums_[data] = at::zeros({N, 3}, at::kLong);
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
  const std::string header = checkpoint::safetensors_header(
      tensors_, {{"format", kOutputsFormat}, {"origin", to_json(origin)}}, path);
  file_.write(header);
  data_begin_ = header.size();
  descriptor_ = Descriptor(::open(file_.temporary().c_str(), O_WRONLY | O_CLOEXEC));
  if (!descriptor_.is_open()) {
    throw Error(concat("cannot write ", file_.temporary().string(), ": ", std::strerror(errno)));
  }
}

void OutputsWriter::write_at(uint64_t begin, const at::Tensor& values) {
  const auto* bytes = static_cast<const char*>(values.const_data_ptr());
  for (size_t done = 0; done < values.nbytes();) {
    const ssize_t wrote = ::pwrite(descriptor_.get(), bytes + done, values.nbytes() - done,
                                   static_cast<off_t>(data_begin_ + begin + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      throw Error(
          concat("cannot write ", path_.string(), ": ", std::strerror(wrote < 0 ? errno : ENOSPC)));
    }
    done += static_cast<size_t>(wrote);
  }
}

void OutputsWriter::write(OutputsOf data, int64_t first, const SampleOutputs& outputs) {
  const std::array<at::Tensor, 3> values = {outputs.tokens_NTk.to(at::kInt).contiguous(),
                                            outputs.log_p_NTk.to(dtype_).contiguous(),
                                            outputs.log_rest_NT.to(dtype_).contiguous()};
  const at::Tensor& checksums = checksums_.at(data);
  const int64_t N = values[0].size(0);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto info = std::ranges::find(tensors_, outputs_tensor(data, kOutputsParts[i]),
                                        &checkpoint::TensorInfo::name);
    TRIREME_ASSERT(info != tensors_.end() && first + N <= info->shape[0], "samples ", first, " to ",
                   first + N);
    const uint64_t sample_bytes = (info->end - info->begin) / static_cast<uint64_t>(info->shape[0]);
    write_at(info->begin + static_cast<uint64_t>(first) * sample_bytes, values[i]);
    for (int64_t n = 0; n < N; ++n) {
      const at::Tensor sample = values[i][n];
      checksums[first + n][static_cast<int64_t>(i)] = outputs_checksum(
          {static_cast<const std::byte*>(sample.const_data_ptr()), sample.nbytes()});
    }
  }
}

uint64_t OutputsWriter::finish() {
  for (const auto& [data, checksums] : checksums_) {
    const auto info = std::ranges::find(tensors_, outputs_tensor(data, "checksums"),
                                        &checkpoint::TensorInfo::name);
    write_at(info->begin, checksums);
  }
  file_.commit();
  return data_begin_ + tensors_.back().end;
}

}  // namespace trireme::tasks
