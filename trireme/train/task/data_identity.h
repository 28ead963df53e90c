// Identifies a run's data whatever its path, for checkpoints to record.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/dataset/source.h"

namespace trireme::train {

struct DataIdentity {
  // Checksums (trireme/base/file/file.h) of the data's parts, by name, such as "tokens".
  std::map<std::string, std::string> checksums{};
  std::map<std::string, int64_t> counts{};  // "num_documents" -> 3

  // Unknown for checkpoints of earlier versions, and without evaluation.
  bool is_known() const { return !checksums.empty(); }
  bool operator==(const DataIdentity&) const = default;
};

// Identifies any source: the number of its samples, and a checksum of 64 of them, spread evenly.
// One that cannot be read counts as such.
DataIdentity identify_samples(const dataset::Source& source);

// Adds the identity of one of several data sets: "tokens" of "code" becomes "code tokens", and
// counts add up. With the name "" checksums keep their names.
void add_part(DataIdentity& whole, const std::string& name, const DataIdentity& part);

// The parts of `data`, by add_part(), of which `other` has the name too. Counts, which are of all
// parts together, stay only if there is one part, without a name.
DataIdentity parts_as_in(const DataIdentity& data, const DataIdentity& other);

// Checks that all ranks read the same data; ranks on several hosts may each have their own copy.
// Comm:       some 60 bytes from each rank to all
// Collective: every rank of `world`
// Throws:     ConfigError on every rank when the data of one differs from rank 0's
void require_same_data(const DataIdentity& mine, const std::string& name,
                       comm::Communicator& world);

// "6 documents, 18112 tokens".
std::string to_text(const DataIdentity& identity);
}  // namespace trireme::train
