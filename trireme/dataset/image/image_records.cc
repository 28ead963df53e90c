#include "trireme/dataset/image/image_records.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/file/as_config_error.h"
#include "trireme/dataset/image/encoded_images.h"
#include "trireme/dataset/image/pixels.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostClasses = 256;  // a label is a byte

std::unique_ptr<const ByteSource> open(const fs::path& path, const FilePlace& place) {
  return as_config_error([&] { return place.open(path.string()); });
}

void read(const ByteSource& file, uint64_t offset, std::span<std::byte> out) {
  as_config_error([&] { file.read(offset, out); }, "; the data must stay as it is during a run");
}

std::vector<std::string> number_names(int64_t count) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

// The dimensions in front of an IDX file's values, which are bytes.
std::vector<int64_t> read_idx_sizes(const ByteSource& file, int num_dims) {
  const std::string path = file.name();
  std::array<std::byte, 4> magic{};
  TRIREME_CHECK(file.num_bytes() >= magic.size(), path, " has ", file.num_bytes(),
                " bytes; expected an IDX file");
  read(file, 0, magic);
  TRIREME_CHECK(magic[0] != std::byte{0x1f} || magic[1] != std::byte{0x8b}, path,
                " is compressed; unpack it with gunzip");
  const bool is_idx = magic[0] == std::byte{0} && magic[1] == std::byte{0} &&
                      magic[2] == std::byte{8} && std::to_integer<int>(magic[3]) == num_dims;
  TRIREME_CHECK(is_idx, path, " does not begin with 0 0 8 ", num_dims,
                "; expected an IDX file of bytes with ", num_dims, " dimensions");
  std::vector<std::byte> header(static_cast<size_t>(4 * num_dims));
  TRIREME_CHECK(file.num_bytes() >= magic.size() + header.size(), path, " ends in its header");
  read(file, magic.size(), header);
  std::vector<int64_t> sizes;
  for (int d = 0; d < num_dims; ++d) {
    uint32_t size = 0;  // big-endian
    for (int i = 0; i < 4; ++i) {
      size = size << 8 | std::to_integer<uint32_t>(header[static_cast<size_t>(4 * d + i)]);
    }
    sizes.push_back(size);
  }
  return sizes;
}

uint64_t idx_header_bytes(int num_dims) { return 4 + 4 * static_cast<uint64_t>(num_dims); }

void check_length(const ByteSource& file, uint64_t expected) {
  TRIREME_CHECK(file.num_bytes() == expected, file.name(), " has ", file.num_bytes(),
                " bytes and its header says ", expected, "; fetch it again");
}

class IdxImages final : public ImageSource {
 public:
  IdxImages(const fs::path& images, const FilePlace& place) : images_(open(images, place)) {
    const std::vector<int64_t> sizes = read_idx_sizes(*images_, 3);
    const int64_t N = sizes[0];
    shape_ = {1, sizes[1], sizes[2]};
    TRIREME_CHECK(
        N >= 1 && sizes[1] >= 1 && sizes[2] >= 1 && sizes[1] <= kMostSide && sizes[2] <= kMostSide,
        images.string(), " has ", N, " images of ", sizes[1], " x ", sizes[2],
        "; expected at least one, of 1 to ", kMostSide, " pixels a side");
    check_length(*images_, idx_header_bytes(3) + static_cast<uint64_t>(N * shape_.num_values()));
    labels_.resize(static_cast<size_t>(N));
    classes_ = number_names(1);
  }

  void read_labels(const fs::path& labels, int64_t num_classes, const FilePlace& place) {
    const std::unique_ptr<const ByteSource> file = open(labels, place);
    const int64_t num_labels = read_idx_sizes(*file, 1)[0];
    TRIREME_CHECK(num_labels == size(), labels.string(), " has ", num_labels, " labels and ",
                  images_->name(), " ", size(), " images; take the files of one set");
    check_length(*file, idx_header_bytes(1) + static_cast<uint64_t>(size()));
    read(*file, idx_header_bytes(1), std::as_writable_bytes(std::span(labels_)));
    classes_ = number_names(std::max<int64_t>(num_classes, *std::ranges::max_element(labels_) + 1));
  }
  // After read_labels().
  void take_classes_of(const ImageSource& like, const fs::path& labels) {
    TRIREME_CHECK(*std::ranges::max_element(labels_) < std::ssize(like.classes()), labels.string(),
                  " has ", classes_.size(), " classes and training has ", like.classes().size(),
                  "; take the files of one set");
    classes_ = like.classes();
    const auto [channels, height, width] = like.shape();
    TRIREME_CHECK(shape_ == like.shape(), images_->name(), " has images of ", shape_.channels,
                  " x ", shape_.height, " x ", shape_.width, " and training of ", channels, " x ",
                  height, " x ", width, "; take the files of one set");
  }

  int64_t size() const override { return std::ssize(labels_); }
  ImageShape shape() const override { return shape_; }
  const std::vector<std::string>& classes() const override { return classes_; }

  NamedTensors get(int64_t index, std::optional<RandomKey> /*augmentation*/) const override {
    const at::Tensor image = at::empty({shape_.channels, shape_.height, shape_.width},
                                       at::TensorOptions().dtype(at::kByte));
    const auto bytes = static_cast<uint64_t>(shape_.num_values());
    read(*images_, idx_header_bytes(3) + static_cast<uint64_t>(index) * bytes,
         {static_cast<std::byte*>(image.mutable_data_ptr()), bytes});
    return image_sample(image, labels_[static_cast<size_t>(index)]);
  }

 private:
  std::unique_ptr<const ByteSource> images_;
  ImageShape shape_;
  std::vector<uint8_t> labels_;
  std::vector<std::string> classes_;
};

class CifarImages final : public ImageSource {
 public:
  CifarImages(const std::vector<fs::path>& paths, Cifar kind, const FilePlace& place)
      : num_labels_(kind == Cifar::k10 ? 1 : 2),
        label_(kind == Cifar::k100 ? 1 : 0),
        classes_(number_names(kind == Cifar::k10    ? 10
                              : kind == Cifar::k100 ? 100
                                                    : 20)) {
    TRIREME_CHECK(!paths.empty(), "no CIFAR file is given; expected such as data_batch_1.bin");
    for (const fs::path& path : paths) {
      std::unique_ptr<const ByteSource> file = open(path, place);
      const auto record = static_cast<uint64_t>(record_bytes());
      TRIREME_CHECK(file->num_bytes() > 0 && file->num_bytes() % record == 0, path.string(),
                    " has ", file->num_bytes(), " bytes; expected records of ", record,
                    ", as in CIFAR's \"binary version\"");
      ends_.push_back(size() + static_cast<int64_t>(file->num_bytes() / record));
      files_.push_back(std::move(file));
    }
  }

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  ImageShape shape() const override { return kShape; }
  const std::vector<std::string>& classes() const override { return classes_; }

  NamedTensors get(int64_t index, std::optional<RandomKey> /*augmentation*/) const override {
    const auto found = std::ranges::upper_bound(ends_, index);
    const auto number = static_cast<size_t>(found - ends_.begin());
    const int64_t record = number == 0 ? index : index - ends_[number - 1];
    std::vector<std::byte> bytes(static_cast<size_t>(record_bytes()));
    read(*files_[number], static_cast<uint64_t>(record) * bytes.size(), bytes);
    const auto label = std::to_integer<int64_t>(bytes[static_cast<size_t>(label_)]);
    TRIREME_CHECK(label < std::ssize(classes_), files_[number]->name(), ": record ", record,
                  " has the label ", label, "; expected 0 to ", std::ssize(classes_) - 1);
    const at::Tensor image = at::empty({kShape.channels, kShape.height, kShape.width},
                                       at::TensorOptions().dtype(at::kByte));
    std::copy(bytes.begin() + num_labels_, bytes.end(),
              static_cast<std::byte*>(image.mutable_data_ptr()));
    return image_sample(image, label);
  }

 private:
  static constexpr ImageShape kShape = {3, 32, 32};
  int64_t record_bytes() const { return num_labels_ + kShape.num_values(); }

  int64_t num_labels_;  // bytes in front of a record's values
  int64_t label_;       // which of them
  std::vector<std::string> classes_;
  std::vector<std::unique_ptr<const ByteSource>> files_;
  std::vector<int64_t> ends_;  // of each file, in samples of all
};

}  // namespace

std::unique_ptr<ImageSource> open_idx(const fs::path& images, const fs::path& labels,
                                      int64_t num_classes, const ImageSource* like,
                                      const FilePlace& place) {
  TRIREME_CHECK(num_classes >= 0 && num_classes <= kMostClasses, "num_classes is ", num_classes,
                "; expected at most ", kMostClasses, ", because labels are bytes");
  auto source = std::make_unique<IdxImages>(images, place);
  source->read_labels(labels, num_classes, place);
  if (like != nullptr) source->take_classes_of(*like, labels);
  return source;
}

std::unique_ptr<ImageSource> open_idx_images(const fs::path& images, const FilePlace& place) {
  return std::make_unique<IdxImages>(images, place);
}

std::unique_ptr<ImageSource> open_cifar(const std::vector<fs::path>& paths, Cifar kind,
                                        const FilePlace& place) {
  return std::make_unique<CifarImages>(paths, kind, place);
}

}  // namespace trireme::dataset
