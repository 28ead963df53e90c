// A model in the form of Hugging Face's transformers: its tensors, how each is made of our
// parameters, and config.json, written and read. Reads and writes no file. Knows no layout. The
// text of a config.json is not trusted. A key that changes what is computed and has no counterpart
// here is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/base/choice.h"
#include "trireme/model/family/hugging_face_form.h"
#include "trireme/model/family/model_config.h"

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
// kept: the object of kept_keys() for an imported model, whose values come before; "": none
std::string hugging_face_config(const ModelConfig& config, c10::ScalarType dtype,
                                std::optional<int64_t> end_of_document, std::string_view kept = "");

// Where the file says a fact twice, transformers' choice holds, and a line of `notes` says so.
// Every size is within the range of our key. Keys that only have an effect together are checked by
// validate(). `source` begins every message.
// Throws: ConfigError with the key, the value found and the value expected
HuggingFaceModel parse_hugging_face_config(std::string_view text, const std::string& source);

// Whether a key of a config.json changes no logits, whatever the class.
bool is_harmless_key(std::string_view name);

// The members of a config.json that an export of the imported model repeats, as one object: token
// ids, keys of generation, and rates of transformers' own training.
// config: the model that is exported
// Throws: ConfigError when it is not such a file
std::string kept_keys(std::string_view text, const std::string& source, const ModelConfig& config);

}  // namespace trireme::model
