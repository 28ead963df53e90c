// The keys of section [data] that say what a language model is trained on.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"
#include "trireme/dataset/samples/packed_source.h"

namespace trireme::tasks {

struct TokenDataConfig {
  TRIREME_KEYS_BEGIN(TokenDataConfig)
  TRIREME_KEY(
      std::string, path, "data/python", kMustStay,
      "prefix of the token files, as given to `trireme data prepare --output`, or of copies "
      "in an object store: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, https://HOST/PREFIX")
  TRIREME_KEY(std::string, cache, "", kMayChange,
              "folder on a local disk that keeps what is read of data in an object store; "
              "\"\" = keep nothing")
  TRIREME_KEY(int64_t, cache_bytes, int64_t{10} << 30, kMayChange,
              "limit on the size of data.cache, in bytes; what was not used for longest goes first",
              Range{1 << 20, 1e15})
  TRIREME_KEY(int64_t, store_timeout, 120, kMayChange,
              "seconds for which a read tries again while an object store does not answer",
              Range{1, 86400})
  TRIREME_KEY(std::string, sources, "", kMustStay,
              "several token files and their shares of the samples, in place of data.path, such as "
              "code=data/code:0.7,web=data/web:0.3")
  TRIREME_KEY(bool, repeat_sources, true, kMayChange,
              "begin a source of data.sources again when all of it is read; false = refuse a run "
              "that would")
  TRIREME_KEY(std::string, validation_sets, "", kMayChange,
              "token files to evaluate, each with a loss of its own, such as "
              "code=data/code.validation,wiki=data/wiki; empty = the validation files beside the "
              "training data")
  TRIREME_KEY(bool, separate_documents, false, kMustStay,
              "mask attention across the documents of a sequence, and count positions from the "
              "beginning of each")
  TRIREME_KEY(dataset::Packing, packing, dataset::Packing::kStream, kMustStay,
              "how documents become sequences: stream cuts all tokens at every sequence_length; "
              "whole puts whole documents together, and padding where none fits",
              dataset::kPackings)
  TRIREME_KEY(double, masked_share, 0.0, kMustStay,
              "masked language modelling: share of the tokens that are hidden and predicted from "
              "all others, such as 0.15, as bert and t5 need it; 0 = predict the next token",
              Range{0, 1})
  TRIREME_KEY(int64_t, mask_token, -1, kMustStay,
              "masked language modelling: token that takes the place of hidden ones; -1 = the "
              "tokenizer's [MASK] or <mask>",
              Range{-1, kMaxVocabulary - 1})
  TRIREME_KEY(double, span_length, 3.0, kMustStay,
              "span corruption (t5): mean number of tokens in a hidden span",
              Range{1, kMaxSequence})
  TRIREME_KEY(
      int64_t, sentinel_token, -1, kMustStay,
      "span corruption (t5): token that stands for the first hidden span; those of the next "
      "ones count down from it; -1 = the tokenizer's <extra_id_0>",
      Range{-1, kMaxVocabulary - 1})
  TRIREME_KEY(int64_t, end_token, -1, kMustStay,
              "span corruption (t5): token that ends inputs and targets; -1 = the tokenizer's end "
              "of a document",
              Range{-1, kMaxVocabulary - 1})
  TRIREME_KEY(int64_t, start_token, 0, kMustStay,
              "span corruption (t5): token that the decoder reads first",
              Range{0, kMaxVocabulary - 1})
  TRIREME_KEYS_END()

  // For messages: data.path, or data.sources.
  const std::string& name() const { return sources.empty() ? path : sources; }
};

}  // namespace trireme::tasks
