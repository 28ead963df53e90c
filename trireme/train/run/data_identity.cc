#include "trireme/train/run/data_identity.h"

#include <algorithm>
#include <span>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/comm/objects.h"

namespace trireme::train::inline internal {
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

DataIdentity identify(const dataset::IndexedFile& file, const dataset::Tokenizer& tokenizer) {
  const std::string about =
      concat(name_of(dataset::kTokenizerKinds, tokenizer.kind()), " ", tokenizer.vocab_size(), " ",
             tokenizer.end_of_document(), " ", tokenizer.serialize());
  return {.index = checksum(InputFile(dataset::idx_path(file.prefix()))),
          .tokens = sample(file),
          .tokenizer = checksum(std::as_bytes(std::span(about))),
          .num_documents = file.num_documents(),
          .num_tokens = file.num_tokens()};
}

void require_same_data(const DataIdentity& mine, const std::string& path,
                       comm::Communicator& world) {
  const std::vector<std::string> all =
      comm::all_gather_strings(world, concat(mine.index, " ", mine.tokens, " ", mine.tokenizer));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    TRIREME_CHECK(all[rank] == all[0], "data.path ", path, " leads rank ", rank,
                  " to different data from rank 0: checksums of index, tokens and tokenizer are ",
                  all[rank], " and ", all[0], "; copy the same files to every host");
  }
}

std::string to_text(const DataIdentity& identity) {
  return concat(identity.num_documents, " documents, ", identity.num_tokens, " tokens");
}

}  // namespace trireme::train::inline internal
