// Identifies the data of a language model whatever its path.
#pragma once

#include "trireme/dataset/source.h"
#include "trireme/dataset/token_stream.h"
#include "trireme/dataset/tokenizer.h"
#include "trireme/train/task/data_identity.h"

namespace trireme::tasks {

// Checksums: `index` of the whole .idx file, which has the length of every document; `tokens` in 64
// places spread over the .bin file; `loss_mask` and `images`, if there are any, in as many of
// theirs; `tokenizer` of its kind, numbers and model. Reads the whole index and at most 512 KiB of
// tokens.
// images: their pixels; null: there are none
train::DataIdentity identify(const dataset::TokenStream& stream,
                             const dataset::Tokenizer& tokenizer,
                             const dataset::IndexedFile* images = nullptr);

// That of the samples of one token file. A blend has the checksums of all its sources, "tokens" of
// "code" as "code tokens", `order` of their names, and `shares` of their weights.
train::DataIdentity identify(const dataset::Source& samples, const dataset::Tokenizer& tokenizer);
// The checksum of a blend that does not say what its samples are, nor their indices.
inline constexpr const char* kSharesChecksum = "shares";

}  // namespace trireme::tasks
