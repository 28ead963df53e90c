#include "trireme/tasks/export/weight_files.h"

#include <cstdio>
#include <map>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/foreign/dcp_writer.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/tensor_boxes.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;
using model::HuggingFaceTensor;

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

// What the names of the files begin with in the program that loads them.
const char* stem_of(ExportForm form) {
  return form == ExportForm::kDiffusers ? "diffusion_pytorch_model" : "model";
}

std::string file_name(const char* stem, size_t index, size_t num_files) {
  if (num_files == 1) return concat(stem, ".safetensors");
  char number[64];
  std::snprintf(number, sizeof(number), "-%05zu-of-%05zu.safetensors", index + 1, num_files);
  return concat(stem, number);
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

void write_index(const fs::path& path, std::span<const Tensors> files, const ExportReport& report) {
  nlohmann::ordered_json index = {
      {"metadata", {{"total_parameters", report.num_parameters}, {"total_size", report.num_bytes}}},
      {"weight_map", nlohmann::ordered_json::object()}};
  for (size_t i = 0; i < files.size(); ++i) {
    for (const HuggingFaceTensor& tensor : files[i]) {
      index["weight_map"][tensor.name] = report.files[i];
    }
  }
  write_file_atomically(path, index.dump(2) + "\n");
}

void count_tensors(Tensors tensors, const ExportSource& source, ExportReport& report) {
  report.num_tensors = std::ssize(tensors);
  for (const HuggingFaceTensor& tensor : tensors) {
    source.check(tensor);
    report.num_parameters += num_elements(tensor);
    report.from_masters |= source.has_better_master(tensor.parts[0]);
  }
  report.num_bytes = report.num_parameters * static_cast<int64_t>(c10::elementSize(report.dtype));
}

void write_weight_files(const fs::path& folder, Tensors tensors, ExportSource& source,
                        const ExportOptions& options, ExportReport& report) {
  const auto itemsize = static_cast<int64_t>(c10::elementSize(report.dtype));
  const auto files = cut_into_files(tensors, options.max_shard_bytes / itemsize);
  const char* const stem = stem_of(options.form);
  for (size_t i = 0; i < files.size(); ++i) {
    report.files.push_back(file_name(stem, i, files.size()));
    write_weights(folder / report.files[i], files[i], source, report.dtype);
  }
  if (files.size() > 1)
    write_index(folder / concat(stem, ".safetensors.index.json"), files, report);
}

void write_dcp_weights(const fs::path& folder, Tensors tensors, ExportSource& source,
                       ExportReport& report) {
  std::vector<std::pair<std::string, checkpoint::SourceTensor>> infos;
  for (const HuggingFaceTensor& tensor : tensors)
    infos.emplace_back(tensor.name,
                       checkpoint::SourceTensor{.dtype = report.dtype, .shape = tensor.shape});
  std::map<std::string, const HuggingFaceTensor*> by_name;
  for (const HuggingFaceTensor& tensor : tensors) by_name[tensor.name] = &tensor;
  checkpoint::write_dcp(folder, infos, [&](const std::string& name, const mesh::Box& part) {
    return source.read(*by_name.at(name), part);
  });
  report.files = {checkpoint::kDcpFile, checkpoint::kDcpMetadata};
}

constexpr size_t kMostLicenseBytes = 64;

}  // namespace

void check_export(const ExportOptions& options) {
  TRIREME_CHECK(options.max_shard_bytes > 0, "max_shard_size = ", options.max_shard_bytes,
                " bytes; expected at least 1, such as 5GB: raise it");
  const bool is_word = options.license.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyz"
                           "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                           "0123456789.-+_") == std::string::npos;
  TRIREME_CHECK(is_word && options.license.size() <= kMostLicenseBytes, "--license is \"",
                shown(options.license),
                "\"; expected an identifier such as apache-2.0, of letters, digits and .-+_");
}

void write_export(const fs::path& output, Tensors tensors, ExportSource& source,
                  const ExportOptions& options, ExportReport& report,
                  const std::function<void(const fs::path& folder)>& write_beside) {
  count_tensors(tensors, source, report);
  if (options.form == ExportForm::kDcp) return write_dcp_weights(output, tensors, source, report);
  NewFolder target(output);
  write_weight_files(target.path(), tensors, source, options, report);
  write_beside(target.path());
  target.commit();
}

}  // namespace trireme::tasks
