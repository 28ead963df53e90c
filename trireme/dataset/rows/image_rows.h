// Images for a trained model: PNG and JPEG files, folders of them, and files of records.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trireme/base/file/byte_source.h"
#include "trireme/dataset/image/image_source.h"
#include "trireme/dataset/rows/row_source.h"

namespace trireme::dataset {

struct ImageRowOptions {
  ImageShape shape{};       // of the model's images
  int64_t size = 0;         // ImageOptions::size in training
  int64_t num_classes = 0;  // of the model; tells CIFAR-10's records from CIFAR-100's
  std::shared_ptr<const FileStore> stores{};  // where URLs are; null: there may be none
};

// Inputs are PNG and JPEG files; folders, which are read recursively and in the order of names,
// without hidden ones and links to folders; and files of records: IDX images, CIFAR's .bin files
// and .tar archives. URLs of files in stores are inputs too; folders there are refused. Other files
// in a folder are left out and counted. Images become what evaluation in training makes of them;
// for a model of grey images, colours become grey.
// A row has "image" as of ImageSource. Labels in files of records are not used.
// Memory: the names of the files
// Throws: ConfigError with the path when an input is missing, is no image, or is a folder without
//         images; read() when one is damaged or has another size than the model's images
std::unique_ptr<RowSource> open_image_rows(std::span<const std::string> inputs,
                                           const ImageRowOptions& options);

}  // namespace trireme::dataset
