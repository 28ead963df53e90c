// The classes of transformers that are Llama and its relatives.
#pragma once

#include <span>

#include "trireme/model/family/hugging_face_key.h"

namespace trireme::model::inline internal {

// Those that compute what a model of this family computes. Mistral is read as a Llama.
extern const HuggingFaceKind kLlamaKind;
extern const HuggingFaceKind kQwen2Kind;
extern const HuggingFaceKind kQwen3Kind;
extern const HuggingFaceKind kMixtralKind;
extern const HuggingFaceKind kQwen3MoeKind;
extern const HuggingFaceKind kDeepSeekKind;

// All that are read, but for those of mixtral_kinds().
std::span<const HuggingFaceKind* const> llama_kinds();
std::span<const HuggingFaceKind* const> mixtral_kinds();

}  // namespace trireme::model::inline internal
