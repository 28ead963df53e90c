// Turns raw data into a folder of records (docs/design/feature-files.md), for `trireme data prepare
// --format`. Reads the input twice: the first pass counts categories, the second writes records.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/dataset/recommend/csv_columns.h"
#include "trireme/dataset/recommend/feature_schema.h"

namespace trireme::dataset {

enum class RawFormat {
  kCriteo,
  kCriteoBinary,
  kCriteoNumpy,
  kCriteoMultiHot,
  kPairs,
  kDebian,
  kDebianSection,
  kCsv
};
inline constexpr Choice<RawFormat> kRawFormats[] = {
    {"criteo", RawFormat::kCriteo},
    {"criteo-binary", RawFormat::kCriteoBinary},
    {"criteo-numpy", RawFormat::kCriteoNumpy},
    {"criteo-multi-hot", RawFormat::kCriteoMultiHot},
    {"pairs", RawFormat::kPairs},
    {"debian", RawFormat::kDebian},
    {"debian-section", RawFormat::kDebianSection},
    {"csv", RawFormat::kCsv},
};

// The form of category ids in prepared samples.
enum class CategoryIds {
  kRows,  // numbers of rows, by a dictionary
  kHash,  // 64-bit hashes, for tables with open vocabularies
};
inline constexpr Choice<CategoryIds> kCategoryIds[] = {{"rows", CategoryIds::kRows},
                                                       {"hash", CategoryIds::kHash}};

struct PrepareFeaturesOptions {
  RawFormat format = RawFormat::kCriteo;
  // Files. Of Criteo's arrays what the names of a day's files begin with: "numpy/day_0".
  std::vector<std::string> inputs = {};
  CsvColumns columns = {};  // csv: of its files; not with `dictionary`
  std::string output = {};  // a folder that is new or empty
  CategoryIds ids = CategoryIds::kRows;
  // Categories that occur more rarely in the training samples share row 0. 1 with kHash.
  int64_t min_count = 1;
  double validation_fraction = 0.0;  // of the samples
  uint64_t seed = 1;                 // chooses the samples for validation
  // A prepared folder whose tables, classes and items are used, for new data of the same kind.
  // Items that it lacks are added. Of longer lists of ids the first are taken. ids and min_count
  // are that folder's.
  std::string dictionary = {};
  // The first pass, and after so many bytes of the input each the second, are kept for a call that
  // goes on after an interruption; of a smaller input nothing is. Changes no byte of the output.
  int64_t journal_bytes = int64_t{64} << 20;
};

struct PrepareFeaturesReport {
  FeatureSchema schema = {};
  std::vector<int64_t> num_categories = {};  // of each table, before the threshold; 0: not counted
  int64_t num_ids = 0;                       // in all records
  int64_t num_rare_ids = 0;                  // of them, row 0
  int64_t num_bytes = 0;                     // of the input
  bool is_resumed = false;                   // the first pass is that of an interrupted call
  int64_t num_resumed = 0;                   // samples that it had written
};

inline constexpr const char* kDictionaryFile = "dictionary.txt";
inline constexpr const char* kItemNamesFile = "items.txt";

// Writes features.json, train.bin, validation.bin if there are such samples, dictionary.txt, and
// items.bin and items.txt if there are items. The same input, options and seed give the same bytes.
// The folder appears when it is complete. A call that was interrupted, or that failed for want of
// room, leaves what it has done beside it; the next with the same options and input goes on there.
// Memory: each distinct category and its text once, about 40 bytes for Criteo's, but with kHash
//         nothing; the items' ids;
//         for Debian's formats the input. Not the samples.
// progress: called with (bytes done, total bytes); the input counts twice
// Throws: ConfigError with file, line and column for input that is wrong, and for options; Error
//         when the disk is full
PrepareFeaturesReport prepare_features(const PrepareFeaturesOptions& options,
                                       const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace trireme::dataset
