// A model in the form of Hugging Face's transformers: its tensors, how each is made of our
// parameters, and config.json. Reads and writes no file. Knows no layout.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/base/choice.h"
#include "trireme/model/family/config.h"
#include "trireme/model/family/hugging_face_form.h"

namespace trireme::model {

// Every tensor of the model, in the plan's order. Each of our parameters, or each slice of
// it, is part of exactly one.
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelConfig& config);

// Makes `tensor` from our parameters.
// Shapes: whole parameters of one dtype, in the order of tensor.parts -> tensor.shape
// Throws: InternalError when the parts do not give tensor.shape
at::Tensor join_parts(const HuggingFaceTensor& tensor, std::span<const at::Tensor> parts);

// The reverse: our parameters, or the slices of them, that `values` consists of.
// adjacent_pairs: how the file stores rotary rows, see HuggingFaceTensor::rotary_rows
// Shapes: values of tensor.shape -> one tensor for each of tensor.parts, which may share memory
//         with `values`
// Throws: InternalError when the values have another shape
std::vector<at::Tensor> split_parts(const HuggingFaceTensor& tensor, const at::Tensor& values,
                                    bool adjacent_pairs = false);

// The transformers class that loads the model.
std::string hugging_face_architecture(const ModelConfig& config);

// The dtypes of config.json.
inline constexpr Choice<c10::ScalarType> kTorchDtypes[] = {{"float64", c10::ScalarType::Double},
                                                           {"float32", c10::ScalarType::Float},
                                                           {"bfloat16", c10::ScalarType::BFloat16},
                                                           {"float16", c10::ScalarType::Half}};

// The text of config.json. end_of_document: the token that begins and ends texts. Without one,
// bos_token_id and eos_token_id are null. If they were left out, transformers would take its own
// default, a token of another vocabulary.
std::string hugging_face_config(const ModelConfig& config, c10::ScalarType dtype,
                                std::optional<int64_t> end_of_document);

}  // namespace trireme::model
