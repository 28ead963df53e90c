// A model as Hugging Face's transformers knows it: its tensors, how each is made of our parameters,
// and config.json. Reads and writes no file, and knows no layout.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/model/family/config.h"
#include "trireme/model/family/hugging_face_form.h"

namespace trireme::model {

// Every tensor of the model, in the plan's order; each of our parameters is part of exactly one.
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelConfig& config);

// Shapes: whole parameters of one dtype, as tensor.parts names them -> tensor.shape
at::Tensor join_parts(const HuggingFaceTensor& tensor, std::span<const at::Tensor> parts);

// The class that loads it.
std::string hugging_face_architecture(const ModelConfig& config);

// The text of config.json. end_of_document: begins and ends texts; none: unknown, so no token does
// (left out, transformers would take its own default, a token of another vocabulary).
std::string hugging_face_config(const ModelConfig& config, c10::ScalarType dtype,
                                std::optional<int64_t> end_of_document);

}  // namespace trireme::model
