// PNG and JPEG files in tar archives, as WebDataset has them.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "trireme/dataset/image/image_source.h"
#include "trireme/dataset/image/image_tree.h"

namespace trireme::dataset {

// Each path is a shard, or a folder whose *.tar are shards, in the order of their names. A sample
// is the neighbouring files whose paths are alike up to the first dot of the name: one .png, .jpg
// or .jpeg, and one .cls with the number of the class, or else one .json whose "cls" or "label" is
// it; other ones are ignored. The classes are the numbers from 0 to the largest. Opening reads the
// headers of all shards, in parallel, and keeps 16 bytes per sample. Samples are read in an order
// that stays local: see SampleOrder.
// like: takes the classes of another source, such as the training data's, and refuses other ones
// Throws: ConfigError with the shard and the byte: what read_tar() refuses, a sample without image
//         or class, with two of them, or whose name occurs twice in a shard, a class that is no
//         number, numbers from 1024 on of which only one in 16 or fewer occurs; get() as
//         open_image_folder()
// Source: github.com/webdataset/webdataset
std::unique_ptr<ImageSource> open_image_tar(const std::vector<std::filesystem::path>& paths,
                                            const ImageOptions& options = {},
                                            const ImageSource* like = nullptr);
// The same of all shards in a folder of a tree, such as one in a store. There an index reads each
// shard once, and a sample is one request; a shard that changes is an error.
// Memory: also 8 MiB for each of up to 8 shards that are read at one time, while it opens
std::unique_ptr<ImageSource> open_image_tar(const ImageTree& tree, const std::string& folder,
                                            const ImageOptions& options = {},
                                            const ImageSource* like = nullptr);

}  // namespace trireme::dataset
