// How far an interrupted preparation of features came: a file in the folder that it writes, beside
// what the first pass has found (features.json, dictionary.txt, items) and the records of the
// second so far.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "trireme/base/file/digest.h"

namespace trireme::dataset {

struct PrepareFeaturesOptions;  // prepare_features.h

struct FeatureJournal {
  Digest identity;
  // Of the first pass.
  int64_t num_bytes = 0;                     // of the input, as it counted them
  std::vector<int64_t> num_categories = {};  // of each table, before the threshold
  // Of the second pass.
  int64_t num_samples = 0;     // read
  int64_t num_training = 0;    // of them, records that are on the disk
  int64_t num_validation = 0;  // the same
  int64_t num_ids = 0;
  int64_t num_rare_ids = 0;

  bool operator==(const FeatureJournal&) const = default;
};

// Stands for all that decides what a preparation writes: options, and the files of the input and
// of the dictionary with their sizes and times.
// Throws: ConfigError when their folders cannot be read
Digest feature_identity(const PrepareFeaturesOptions& options);

// Whether a folder has a journal, of any identity.
bool has_feature_journal(const std::filesystem::path& folder);

// None: there is none of this identity, or it is damaged.
std::optional<FeatureJournal> read_feature_journal(const std::filesystem::path& folder,
                                                   const Digest& identity);

// It is on the disk when the call returns, in place of the one before.
// Throws: Error when the disk is full
void write_feature_journal(const std::filesystem::path& folder, const FeatureJournal& journal);

void remove_feature_journal(const std::filesystem::path& folder);

}  // namespace trireme::dataset
