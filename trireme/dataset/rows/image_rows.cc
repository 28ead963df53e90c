#include "trireme/dataset/rows/image_rows.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/base/file/byte_source.h"
#include "trireme/base/file/read_ahead.h"
#include "trireme/dataset/file/as_config_error.h"
#include "trireme/dataset/image/decode.h"
#include "trireme/dataset/image/encoded_images.h"
#include "trireme/dataset/image/image_records.h"
#include "trireme/dataset/image/tar_entries.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

enum class Kind { kImage, kIdx, kCifar, kTar };

struct Input {
  fs::path path{};  // or the URL
  Kind kind = Kind::kImage;
  std::shared_ptr<const ByteSource> object{};  // of a store; null: a file of this machine

  // For one reader, from the beginning to the end.
  std::unique_ptr<ByteSource> open() const {
    if (object) return read_ahead(object);
    return as_config_error([&] { return local_files().open(path.string()); });
  }
};

// The kind of a file, by its first bytes and its name. Anything else is taken for an image, which
// says what is wrong with it.
Kind kind_of(const ByteSource& file) {
  return as_config_error([&] {
    constexpr uint64_t kTarMagicAt = 257;
    std::array<std::byte, kTarMagicAt + 5> head{};
    const std::span<std::byte> read =
        std::span(head).first(std::min<uint64_t>(head.size(), file.num_bytes()));
    file.read(0, read);
    const std::string_view text(reinterpret_cast<const char*>(read.data()), read.size());
    if (text.starts_with(std::string_view("\0\0\x08\x03", 4))) return Kind::kIdx;
    if (text.size() == head.size() && text.substr(kTarMagicAt) == "ustar") return Kind::kTar;
    return file.name().ends_with(".bin") ? Kind::kCifar : Kind::kImage;
  });
}

// The images below a folder, in the order of names. Counts the files that are not images, and what
// is hidden.
void find_images(const fs::path& folder, std::vector<Input>& found, int64_t& num_others) {
  for (const fs::directory_entry& item : items_of(folder)) {
    const std::string name = item.path().filename().string();
    std::error_code unknown;
    if (name.starts_with('.')) {
      ++num_others;
    } else if (item.is_directory(unknown)) {
      if (!item.is_symlink(unknown)) find_images(item.path(), found, num_others);
    } else if (is_image_name(name) && item.is_regular_file(unknown)) {
      found.push_back({item.path()});
    } else {
      ++num_others;
    }
  }
}

// Shapes: [3, H, W] -> [1, H, W]
// Source: ITU-R BT.601, as Pillow's convert("L"); grey stays the same
at::Tensor to_grey(const at::Tensor& image) {
  const int64_t H = image.size(1), W = image.size(2);
  at::Tensor grey = at::empty({1, H, W}, image.options());
  const auto* const colours = image.const_data_ptr<uint8_t>();
  auto* const out = grey.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < H * W; ++i) {
    const int sum = 299 * colours[i] + 587 * colours[H * W + i] + 114 * colours[2 * H * W + i];
    out[i] = static_cast<uint8_t>((sum + 500) / 1000);
  }
  return grey;
}

class ImageRows final : public RowSource {
 public:
  ImageRows(std::span<const std::string> inputs, const ImageRowOptions& options)
      : options_(options) {
    for (const std::string& input : inputs) add(input);
    for (const Input& input : inputs_) total_ += count(input);
  }

  void read(const std::function<void(Row)>& use) override {
    done_ = 0;
    const auto count_and_use = [&](Row row) {
      use(std::move(row));
      ++done_;
    };
    for (const Input& input : inputs_) read_input(input, count_and_use);
  }

  int64_t num_done() const override { return done_; }
  int64_t num_total() const override { return total_; }
  std::string unit() const override { return "images"; }
  std::string left_out() const override { return left_out_text(num_others_); }

 private:
  void add(const std::string& input) {
    if (is_url(input)) return add_object(input);
    std::error_code unknown;
    if (!fs::is_directory(input, unknown)) {
      inputs_.push_back({input});
      inputs_.back().kind = kind_of(*inputs_.back().open());
      return;
    }
    const size_t before = inputs_.size();
    find_images(input, inputs_, num_others_);
    TRIREME_CHECK(inputs_.size() > before, "the folder ", input,
                  " has no images; expected .png, .jpg or .jpeg files in it or below");
  }

  void add_object(const std::string& url) {
    TRIREME_CHECK(options_.stores, url, " is in a store; expected a file of this machine");
    TRIREME_CHECK(!url.ends_with('/'), url,
                  " is a folder of a store; name the files, or pack them into a tar archive: each "
                  "image is a request otherwise");
    std::shared_ptr<const ByteSource> object = options_.stores->find(url);
    TRIREME_CHECK(object, url,
                  " does not exist; expected an image, a tar archive, or a file of "
                  "MNIST's or CIFAR's");
    const Kind kind = kind_of(*object);
    inputs_.push_back({url, kind, std::move(object)});
  }

  std::unique_ptr<ImageSource> open_records(const Input& input) const {
    const FilePlace& place = input.object ? *options_.stores : local_files();
    std::unique_ptr<ImageSource> records;
    if (input.kind == Kind::kIdx) {
      records = open_idx_images(input.path, place);
    } else {
      records = open_cifar({input.path},
                           options_.num_classes > 20   ? Cifar::k100
                           : options_.num_classes > 10 ? Cifar::k100Coarse
                                                       : Cifar::k10,
                           place);
    }
    const auto [channels, height, width] = records->shape();
    TRIREME_CHECK(records->shape() == options_.shape, input.path.string(), " has images of ",
                  channels, " x ", height, " x ", width, " and the model takes ",
                  options_.shape.channels, " x ", options_.shape.height, " x ",
                  options_.shape.width, "; take the data that it was trained for");
    return records;
  }

  int64_t count(const Input& input) const {
    if (input.kind == Kind::kImage) return 1;
    if (input.kind != Kind::kTar) return open_records(input)->size();
    int64_t number = 0;
    read_tar(*input.open(),
             [&](const TarEntry& entry) { number += is_image_name(entry.name) ? 1 : 0; });
    TRIREME_CHECK(number > 0, input.path.string(),
                  " has no images; expected .png, .jpg or .jpeg files in it");
    return number;
  }

  void read_input(const Input& input, const std::function<void(Row)>& use) {
    const std::string path = input.path.string();
    if (input.kind == Kind::kImage) {
      const std::string bytes =
          as_config_error([&] { return read_all(*input.open(), kMostEncodedBytes); });
      use({.path = path, .sample = {{"image", make(std::as_bytes(std::span(bytes)), path)}}});
    } else if (input.kind == Kind::kTar) {
      read_archive(*input.open(), use);
    } else {
      const std::unique_ptr<ImageSource> records = open_records(input);
      for (int64_t i = 0; i < records->size(); ++i) {
        const NamedTensors sample = records->get(i, std::nullopt);
        use({.path = path, .number = i + 1, .sample = {{"image", find_tensor(sample, "image")}}});
      }
    }
  }

  void read_archive(const ByteSource& file, const std::function<void(Row)>& use) {
    read_tar(file, [&](const TarEntry& entry) {
      if (!is_image_name(entry.name)) return;
      const std::string name = file.name() + "/" + entry.name;
      TRIREME_CHECK(entry.size <= kMostEncodedBytes, name, " has ", entry.size,
                    " bytes; expected at most ", kMostEncodedBytes);
      std::vector<std::byte> bytes(entry.size);
      as_config_error([&] { file.read(entry.offset, bytes); });
      use({.path = name, .sample = {{"image", make(bytes, name)}}});
    });
  }

  at::Tensor make(std::span<const std::byte> bytes, const std::string& name) {
    const ImageSize size = image_size(bytes, name);
    const ImageShape& shape = options_.shape;
    TRIREME_CHECK(options_.size > 0 || (size.height == shape.height && size.width == shape.width),
                  name, " has ", size.height, " x ", size.width, " pixels and the model takes ",
                  shape.height, " x ", shape.width,
                  ", as data.image_size is 0; bring the image to that size");
    if (!maker_) maker_.emplace(ImageOptions{.size = options_.size}, bytes, name);
    at::Tensor image = maker_->make(bytes, name, std::nullopt);
    return shape.channels == 1 ? to_grey(image) : image;
  }

  ImageRowOptions options_;
  std::vector<Input> inputs_;
  int64_t num_others_ = 0;
  int64_t total_ = 0;
  int64_t done_ = 0;
  std::optional<ImageMaker> maker_;  // made with the first image
};

}  // namespace

std::unique_ptr<RowSource> open_image_rows(std::span<const std::string> inputs,
                                           const ImageRowOptions& options) {
  TRIREME_CHECK(options.shape.channels == 1 || options.shape.channels == 3, "the model's images ",
                "have ", options.shape.channels, " channels; expected 1 or 3");
  return std::make_unique<ImageRows>(inputs, options);
}

}  // namespace trireme::dataset
