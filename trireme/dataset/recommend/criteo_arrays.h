// Criteo's data as arrays of NumPy, as TorchRec and MLPerf's DLRM prepare them. A day is named by
// what its files' names have in common, such as numpy/day_0:
//   numpy/day_0_dense.npy   [samples, 13] float32, taken as they are: after the logarithm
//   numpy/day_0_labels.npy  [samples, 1] int32, 0 or 1
//   numpy/day_0_sparse.npy  [samples, 26] int32 or int64, the categories, or
//   numpy/day_0_sparse_multi_hot.npz  26 arrays "0" to "25" [samples, ids per sample], in a zip
//                                     archive without compression
// A category is taken for a text of 8 hexadecimal digits, and 0 for a missing one.
// Source: pytorch/torchrec, torchrec/datasets/criteo.py; facebookresearch/dlrm,
//         torchrec_dlrm/scripts/materialize_synthetic_multihot_dataset.py
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/dataset/recommend/raw_data.h"

namespace trireme::dataset {

inline constexpr const char* kDenseArray = "_dense.npy";
inline constexpr const char* kLabelArray = "_labels.npy";
inline constexpr const char* kCategoryArray = "_sparse.npy";
inline constexpr const char* kMultiHotArchive = "_sparse_multi_hot.npz";

// Throws: ConfigError when it is a folder or the name of an array, and so not a day's
void check_day_name(const std::string& day);

// Negative numbers of int32 are the categories from 2^31 on: earlier releases of TorchRec wrote the
// lowest 32 bits.
// Memory: 256 KiB for each array of a day
// Throws: ConfigError with the file for one that is missing, or has another form or another number
//         of samples than its neighbours
std::unique_ptr<RawData> open_criteo_arrays(const std::vector<std::string>& days);

// A sample has as many ids of a table as the array has columns.
// Throws: as open_criteo_arrays(); also when days have different numbers of columns
std::unique_ptr<RawData> open_criteo_multi_hot(const std::vector<std::string>& days);

}  // namespace trireme::dataset
