// Identifies a run's data whatever its path, for checkpoints to record: its tokens and tokenizer.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/dataset/indexed_file.h"
#include "trireme/dataset/tokenizer.h"

namespace trireme::train::inline internal {

// Checksums are those of trireme/base/file/file.h.
struct DataIdentity {
  std::string index;      // of the whole .idx file, which has the length of every document
  std::string tokens;     // of tokens in 64 places spread over the .bin file
  std::string tokenizer;  // of its kind, numbers and model
  int64_t num_documents = 0;
  int64_t num_tokens = 0;

  // Unknown for checkpoints of earlier versions.
  bool is_known() const { return !index.empty(); }
  bool operator==(const DataIdentity&) const = default;
};

// Reads the whole index and at most 512 KiB of tokens.
DataIdentity identify(const dataset::IndexedFile& file, const dataset::Tokenizer& tokenizer);

// Checks that all ranks read the same data; ranks on several hosts may each have their own copy.
// Comm:       some 60 bytes from each rank to all
// Collective: every rank of `world`
// Throws:     ConfigError on every rank when the data of one differs from rank 0's
void require_same_data(const DataIdentity& mine, const std::string& path,
                       comm::Communicator& world);

// "6 documents, 18112 tokens".
std::string to_text(const DataIdentity& identity);

}  // namespace trireme::train::inline internal
