#include "trireme/tasks/language/token_identity.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/samples/blended_source.h"

namespace trireme::tasks {
namespace {

constexpr int64_t kPlaces = 64;
constexpr int64_t kTokensAPlace = 1024;

// A sample detects other text whose documents happen to have the same lengths. Reading a large file
// whole would take minutes.
std::string sample(const dataset::IndexedFile& file) {
  const int64_t length = std::min(kTokensAPlace, file.num_tokens());
  const int64_t last = file.num_tokens() - length;
  std::vector<int64_t> tokens(static_cast<size_t>(kPlaces * length));
  for (int64_t place = 0; place < kPlaces; ++place) {
    // In this order of operations nothing overflows.
    const int64_t offset =
        last / (kPlaces - 1) * place + last % (kPlaces - 1) * place / (kPlaces - 1);
    file.read(offset, std::span(tokens).subspan(static_cast<size_t>(place * length),
                                                static_cast<size_t>(length)));
  }
  return checksum(std::as_bytes(std::span(tokens)));
}

}  // namespace

train::DataIdentity identify(const dataset::TokenStream& stream,
                             const dataset::Tokenizer& tokenizer,
                             const dataset::IndexedFile* images) {
  const dataset::IndexedFile& file = stream.file();
  const std::string about =
      concat(name_of(dataset::kTokenizerKinds, tokenizer.kind()), " ", tokenizer.vocab_size(), " ",
             tokenizer.end_of_document(), " ", tokenizer.serialize());
  train::DataIdentity identity{
      .checksums = {{"index", file.index_checksum()},
                    {"tokens", sample(file)},
                    {"tokenizer", checksum(std::as_bytes(std::span(about)))}},
      .counts = {{"num_documents", file.num_documents()}, {"num_tokens", file.num_tokens()}}};
  if (stream.mask() != nullptr) identity.checksums["loss_mask"] = sample(*stream.mask());
  if (stream.labels() != nullptr) identity.checksums["labels"] = sample(*stream.labels());
  if (images != nullptr) identity.checksums["images"] = sample(*images);
  return identity;
}

train::DataIdentity identify(const dataset::Source& samples, const dataset::Tokenizer& tokenizer) {
  const auto* const blended = dynamic_cast<const dataset::BlendedSource*>(&samples);
  if (blended == nullptr) {
    const auto& tokens = dynamic_cast<const dataset::TokenSamples&>(samples);
    return identify(tokens.stream(), tokenizer, tokens.images());
  }
  train::DataIdentity all;
  std::string order, shares;
  const std::vector<dataset::BlendPart>& parts = blended->blend()->parts();
  for (size_t i = 0; i < parts.size(); ++i) {
    train::add_part(all, parts[i].name, identify(blended->part(i), tokenizer));
    order += parts[i].name + "\n";
    shares += concat(parts[i].name, " ", parts[i].weight, "\n");
  }
  all.checksums["order"] = checksum(std::as_bytes(std::span(order)));
  all.checksums[kSharesChecksum] = checksum(std::as_bytes(std::span(shares)));
  return all;
}

}  // namespace trireme::tasks
