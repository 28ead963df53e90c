// Images that lie in files as records of one size: MNIST's IDX and CIFAR's binary files. A sample
// is read from the file when it is asked for; nothing but labels is kept. The files may lie in a
// store: paths are then URLs, and a sample is one request.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/file/byte_source.h"
#include "trireme/dataset/image/image_source.h"

namespace trireme::dataset {

// IDX: a file of images [N, H, W] uint8 and one of labels [N] uint8, each with its sizes in front.
// The classes are the numbers from 0 to the largest label, at least `num_classes` of them.
// like: takes the classes of another source, such as the training data's, and refuses other ones
//       and images of another shape.
// Throws: ConfigError with the path: not such a file, compressed, another length than its header
//         says, another number of labels than images, or not like `like`; get() when the file has
//         become shorter
// Source: yann.lecun.com/exdb/mnist
std::unique_ptr<ImageSource> open_idx(const std::filesystem::path& images,
                                      const std::filesystem::path& labels, int64_t num_classes = 0,
                                      const ImageSource* like = nullptr,
                                      const FilePlace& place = local_files());

// The images alone: each has the class 0.
// Throws: as open_idx()
std::unique_ptr<ImageSource> open_idx_images(const std::filesystem::path& images,
                                             const FilePlace& place = local_files());

enum class Cifar {
  k10,         // a label, then 32 x 32 values of red, of green, of blue
  k100,        // a label of 20 coarse classes, one of 100 fine ones, then the values
  k100Coarse,  // the same files with the coarse labels
};

// CIFAR's binary files, one after the other.
// Throws: ConfigError with the path when its length is not a whole number of records; get() also
//         for a label beyond the classes, with the file and the record
// Source: cs.toronto.edu/~kriz/cifar.html
std::unique_ptr<ImageSource> open_cifar(const std::vector<std::filesystem::path>& paths, Cifar kind,
                                        const FilePlace& place = local_files());

}  // namespace trireme::dataset
