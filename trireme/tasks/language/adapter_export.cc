#include "trireme/tasks/language/adapter_export.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/model/family/plan.h"
#include "trireme/tasks/language/foreign/peft_form.h"

namespace trireme::tasks {
namespace {

using model::HuggingFaceTensor;
using nlohmann::ordered_json;

// Reads what the files have from a checkpoint.
class AdapterReader {
 public:
  AdapterReader(const model::ModelConfig& config, ExportSource& source, c10::ScalarType dtype)
      : rank_(config.lora.rank), source_(source), dtype_(dtype), plan_(model::make_plan(config)) {}

  at::Tensor read(const HuggingFaceTensor& tensor) {
    source_.check(tensor);
    return source_.read(tensor, {std::vector<int64_t>(tensor.shape.size()), tensor.shape})
        .contiguous();
  }

  // [ranks, in]: the A of each part, one under the other.
  at::Tensor joined_a(const PeftMatrix& matrix) {
    std::vector<at::Tensor> rows;
    for (const size_t part : matrix.parts) rows.push_back(read_own(matrix, part, model::kAdapterA));
    return at::cat(rows, 0);
  }

  // [out, ranks]: the B of each part, in that part's rows and its A's columns.
  at::Tensor joined_b(const PeftMatrix& matrix) {
    at::Tensor whole = at::zeros({matrix.out(), rank_ * std::ssize(matrix.parts)},
                                 at::TensorOptions().dtype(dtype_));
    int64_t column = 0;
    for (const size_t part : matrix.parts) {
      const mesh::Range rows = matrix.rows_of(part);
      whole.narrow(0, rows.offset, rows.size)
          .narrow(1, column, rank_)
          .copy_(read_own(matrix, part, model::kAdapterB));
      column += rank_;
    }
    return whole;
  }

  // [E*r, in]
  at::Tensor stacked_a(const PeftStack& stack) {
    return read_own(stack.name + model::kAdapterA).flatten(0, 1);
  }

  // [out, r*E]
  at::Tensor stacked_b(const PeftStack& stack) {
    std::vector<at::Tensor> parts;
    for (const std::string& weight : stack.weights)
      parts.push_back(read_own(weight + model::kAdapterB));
    return stack.joined_b(parts);
  }

  // [out]: the magnitude of each row; of parts without an adapter, the row's length.
  at::Tensor joined_magnitudes(const PeftMatrix& matrix) {
    at::Tensor whole = at::empty({matrix.out()}, at::TensorOptions().dtype(dtype_));
    for (size_t part = 0; part < matrix.tensor.parts.size(); ++part) {
      at::Tensor values = source_.row_lengths(matrix.tensor.parts[part]);
      if (std::ranges::count(matrix.parts, part) > 0)
        values += read_own(matrix, part, model::kAdapterMagnitude);
      const mesh::Range rows = matrix.rows_of(part);
      whole.narrow(0, rows.offset, rows.size).copy_(values);
    }
    return whole;
  }

 private:
  at::Tensor read_own(const PeftMatrix& matrix, size_t part, const char* name) {
    return read_own(module_of(matrix.tensor.parts[part]) + name);
  }

  at::Tensor read_own(const std::string& own) {
    return read({own, plan_.layout(own).whole_shape(), {own}});
  }

  int64_t rank_;
  ExportSource& source_;
  c10::ScalarType dtype_;
  model::ModelPlan plan_;
};

struct AdapterTensor {
  checkpoint::TensorInfo info;
  std::function<at::Tensor()> read;
};

std::vector<AdapterTensor> adapter_tensors(const PeftForm& form, const model::AdapterConfig& lora,
                                           AdapterReader& reader, c10::ScalarType dtype) {
  std::vector<AdapterTensor> tensors;
  const auto add = [&](std::string name, std::vector<int64_t> shape,
                       std::function<at::Tensor()> read) {
    tensors.push_back(
        {{.name = kPeftPrefix + name, .dtype = dtype, .shape = std::move(shape)}, std::move(read)});
  };
  for (const PeftMatrix& matrix : form.matrices) {
    const int64_t ranks = lora.rank * std::ssize(matrix.parts);
    add(matrix.module() + model::kAdapterA, {ranks, matrix.in()},
        [&reader, &matrix] { return reader.joined_a(matrix); });
    add(matrix.module() + model::kAdapterB, {matrix.out(), ranks},
        [&reader, &matrix] { return reader.joined_b(matrix); });
    if (!lora.dora) continue;
    add(matrix.module() + kPeftMagnitude, {matrix.out()},
        [&reader, &matrix] { return reader.joined_magnitudes(matrix); });
  }
  for (const PeftStack& stack : form.stacks) {
    const int64_t ranks = lora.rank * stack.experts;
    add(stack.module + model::kAdapterA, {ranks, stack.in},
        [&reader, &stack] { return reader.stacked_a(stack); });
    add(stack.module + model::kAdapterB, {stack.out, ranks},
        [&reader, &stack] { return reader.stacked_b(stack); });
  }
  for (const HuggingFaceTensor& tensor : form.saved) {
    add(tensor.name, tensor.shape, [&reader, &tensor] { return reader.read(tensor); });
  }
  return tensors;
}

ordered_json adapter_config(const model::ModelConfig& model, const PeftForm& form,
                            const std::string& base_model) {
  const model::AdapterConfig& lora = model.lora;
  ordered_json ranks = ordered_json::object(), alphas = ordered_json::object(), saved;
  for (const PeftMatrix& matrix : form.matrices) {
    if (matrix.parts.size() == 1) continue;
    ranks[matrix.module()] = std::ssize(matrix.parts) * lora.rank;
    alphas[matrix.module()] = static_cast<double>(matrix.parts.size()) * lora.alpha;
  }
  for (const HuggingFaceTensor& tensor : form.saved) {
    std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
    if (saved.empty() || saved.back() != module) saved.push_back(std::move(module));
  }
  const bool transposes = !form.matrices.empty() && form.matrices.front().tensor.is_transposed;
  ordered_json config = {{"peft_type", "LORA"},
                         {"task_type", model.classes > 0     ? "SEQ_CLS"
                                       : model.has_decoder() ? "SEQ_2_SEQ_LM"
                                                             : "CAUSAL_LM"},
                         {"base_model_name_or_path",
                          base_model.empty() ? ordered_json(nullptr) : ordered_json(base_model)},
                         {"r", lora.rank},
                         {"lora_alpha", lora.alpha},
                         {"lora_dropout", lora.dropout},
                         {"target_modules", form.targets},
                         {"modules_to_save", std::move(saved)},
                         {"rank_pattern", std::move(ranks)},
                         {"alpha_pattern", std::move(alphas)},
                         {"bias", "none"},
                         {"fan_in_fan_out", transposes},
                         {"init_lora_weights", true},
                         {"use_rslora", false},
                         {"use_dora", lora.dora},
                         {"inference_mode", true}};
  if (!form.stacks.empty()) config["target_parameters"] = form.parameters;
  return config;
}

}  // namespace

AdapterExport write_adapters(const std::filesystem::path& folder, const model::ModelConfig& config,
                             const std::string& base_model, ExportSource& source,
                             c10::ScalarType dtype) {
  TRIREME_CHECK(config.lora.is_on(),
                "the run has no adapters (lora.rank is 0), which --format peft exports; use "
                "--format hf");
  const PeftForm form = peft_form(config);
  for (const PeftMatrix& matrix : form.matrices) {
    TRIREME_CHECK(
        matrix.tensor.rotary_rows == 0, "the adapter of ", matrix.tensor.name,
        " has rows that transformers may keep in another order (DeepSeek's and GLM-4's, "
        "which positions turn); export the merged model (--format hf), or leave the layer "
        "out of lora.targets");
  }
  AdapterReader reader(config, source, dtype);
  const std::vector<AdapterTensor> tensors = adapter_tensors(form, config.lora, reader, dtype);
  AdapterExport report{.num_tensors = std::ssize(tensors)};
  std::vector<checkpoint::TensorInfo> infos;
  for (const AdapterTensor& tensor : tensors) infos.push_back(tensor.info);
  // All have one dtype, so the writer keeps their order.
  checkpoint::SafetensorsWriter writer(folder / kPeftWeights, std::move(infos), {{"format", "pt"}});
  for (const AdapterTensor& tensor : tensors) {
    const at::Tensor values = tensor.read();
    report.num_parameters += values.numel();
    writer.write_part(values);
  }
  writer.finish(/*fsync=*/true);
  write_file_atomically(folder / kPeftConfig,
                        adapter_config(config, form, base_model).dump(2) + "\n");
  return report;
}

}  // namespace trireme::tasks
