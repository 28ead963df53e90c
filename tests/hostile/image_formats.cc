// PNG and JPEG files, folders of them, and tar archives.
#include <algorithm>
#include <cstddef>
#include <span>

#include <ATen/ATen.h>
#include <sys/stat.h>

#include "tests/dataset/image/encoded.h"
#include "tests/dataset/image/tar.h"
#include "tests/dataset/memory_store.h"
#include "tests/hostile/format.h"
#include "trireme/base/error.h"
#include "trireme/dataset/image/decode.h"
#include "trireme/dataset/image/image_folder.h"
#include "trireme/dataset/image/image_tar.h"
#include "trireme/dataset/image/image_tree.h"

namespace trireme::hostile {
namespace {

using dataset::jpeg_of;
using dataset::picture;
using dataset::png_of;
using dataset::tar_end;
using dataset::tar_entry;

void use(const dataset::ImageSource& source) {
  const dataset::ImageShape shape = source.shape();
  for (int64_t i = 0; i < source.size(); ++i) {
    for (const bool trains : {false, true}) {
      expect_refusal_or_sense([&] {
        const auto key = trains ? std::optional(random_key(1, "x")) : std::nullopt;
        const auto sample = source.get(i, key);
        const at::Tensor image = dataset::find_tensor(sample, "image");
        require(image.numel() == shape.num_values(), "an image of another shape than the source");
        const auto label = dataset::find_tensor(sample, "label").item<int64_t>();
        require(label >= 0 && label < std::ssize(source.classes()), "a label beyond the classes");
      });
    }
  }
}

// Gives every chunk of a PNG file the checksum that its content has.
void repair_png(std::string& bytes) {
  for (size_t at = 8; at + 12 <= bytes.size();) {
    uint32_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<uint8_t>(bytes[at + i]);
    if (length > bytes.size() - at - 12) return;
    uint32_t crc = ~0U;
    for (size_t i = at + 4; i < at + 8 + length; ++i) {
      crc ^= static_cast<uint8_t>(bytes[i]);
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320U : 0U);
    }
    for (size_t i = 0; i < 4; ++i) {
      bytes[at + 8 + length + i] = static_cast<char>(~crc >> (24 - 8 * i) & 0xff);
    }
    at += 12 + length;
  }
}

class EncodedImage : public Format {
 public:
  explicit EncodedImage(bool png) : png_(png) {
    if (png) {
      valid_.push_back(png_of(picture(19, 23)));
      valid_.push_back(png_of(5, 7, std::vector<uint8_t>(5 * 7 * 4, 90),
                              {.colour = PNG_COLOR_TYPE_RGB_ALPHA, .interlaced = true}));
      valid_.push_back(png_of(5, 7, std::vector<uint8_t>(5 * 7 * 2, 90),
                              {.colour = PNG_COLOR_TYPE_GRAY, .depth = 16}));
      valid_.push_back(png_of(
          5, 7, std::vector<uint8_t>(5 * 7, 1),
          {.colour = PNG_COLOR_TYPE_PALETTE, .palette = {1, 2, 3, 40, 50, 60}, .alphas = {9}}));
    } else {
      valid_.push_back(jpeg_of(picture(40, 50)));
      valid_.push_back(jpeg_of(picture(40, 50), {.sampling = 1, .restart = 3}));
      valid_.push_back(jpeg_of(picture(40, 50), {.progressive = true}));
      valid_.push_back(jpeg_of(9, 9, std::vector<uint8_t>(81, 7), {.sampling = 1, .grey = true}));
      valid_.push_back(
          jpeg_of(9, 9, std::vector<uint8_t>(81 * 4, 7), {.sampling = 1, .cmyk = true}));
    }
  }
  std::string name() const override { return png_ ? "png" : "jpeg"; }

  void write(Random& random) override {
    bytes_ = random.pick(valid_);
    for (size_t count = 1 + random.below(3); count > 0; --count) {
      if (random.one_in(3)) {
        // Sizes: of a PNG behind its signature, of a JPEG behind the marker of its frame.
        const size_t frame = std::min(bytes_.find("\xff\xc0"), bytes_.find("\xff\xc2"));
        const size_t at = png_ ? 16 + random.below(8) : frame + 4 + random.below(8);
        put_edge(bytes_, std::min(at, bytes_.size()), 1 + random.below(4), random);
      } else {
        damage_bytes(bytes_, random);
      }
    }
    if (png_ && !random.one_in(4)) repair_png(bytes_);
    for (int64_t& draw : draws_) draw = static_cast<int64_t>(random.below(1 << 20));
  }

  void read() override {
    expect_refusal_or_sense([&] {
      const auto bytes = std::as_bytes(std::span(bytes_));
      const dataset::ImageSize size = dataset::image_size(bytes, "x");
      require(size.height >= 1 && size.height <= dataset::kMostSide && size.width >= 1 &&
                  size.width <= dataset::kMostSide,
              "an image beyond the limits");
      dataset::Box box;
      box.height = 1 + draws_[0] % size.height;
      box.width = 1 + draws_[1] % size.width;
      box.top = draws_[2] % (size.height - box.height + 1);
      box.left = draws_[3] % (size.width - box.width + 1);
      const auto found = dataset::decode_image(bytes, "x", box, {8, 8});
      require(found.region.top >= 0 && found.region.left >= 0 &&
                  found.region.top + found.region.height <=
                      static_cast<double>(found.pixels.size.height) + 1e-9 &&
                  found.region.left + found.region.width <=
                      static_cast<double>(found.pixels.size.width) + 1e-9,
              "a box outside of its pixels");
      int64_t sum = 0;  // reads every pixel
      const int64_t count = 3 * found.pixels.size.height * found.pixels.size.width;
      for (int64_t i = 0; i < count; ++i) sum += found.pixels.values[static_cast<size_t>(i)];
      require(sum <= 255 * count, "a pixel of more than 8 bits");
    });
  }

 private:
  bool png_;
  std::vector<std::string> valid_;
  std::string bytes_;
  int64_t draws_[4] = {};
};

class ImageTree : public Format {
 public:
  explicit ImageTree(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::string name() const override { return "image-folder"; }

  void write(Random& random) override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    const std::string names[] = {"a",         "b",
                                 ".c",        "1.png",
                                 "2.JPG",     "x\n\x1b[2J.png",
                                 "notes.txt", std::string(200, 'n') + ".jpeg"};
    for (size_t count = random.below(6); count > 0; --count) {
      const auto folder = folder_ / random.pick(names);
      std::error_code ignored;
      if (random.one_in(8)) {
        std::filesystem::create_symlink(folder, folder, ignored);
        continue;
      }
      if (!std::filesystem::create_directory(folder, ignored)) continue;
      for (size_t files = random.below(4); files > 0; --files)
        put(folder, random.pick(names), random);
    }
  }

  void read() override {
    for (const int64_t size : {0, 4}) {
      const dataset::ImageOptions options{.size = size, .augment = {.resized_crop = true}};
      expect_refusal_or_sense([&] { use(*dataset::open_image_folder(folder_, options)); });
    }
  }

 private:
  void put(const std::filesystem::path& folder, const std::string& name, Random& random) {
    std::error_code ignored;
    switch (random.below(6)) {
      case 0: std::filesystem::create_directory(folder / name, ignored); break;
      case 1: mkfifo((folder / name).c_str(), 0600); break;
      case 2: std::filesystem::create_symlink("/dev/zero", folder / name, ignored); break;
      default: {
        if (std::filesystem::exists(folder / name, ignored)) break;
        std::string bytes = random.one_in(2) ? png_ : jpeg_;
        if (random.one_in(3)) damage_bytes(bytes, random);
        put_file(folder / name, bytes);
      }
    }
  }

  std::filesystem::path folder_;
  std::string png_ = png_of(picture(6, 6));
  std::string jpeg_ = jpeg_of(picture(6, 6));
};

class TarShard : public Format {
 public:
  explicit TarShard(const std::filesystem::path& folder) : path_(folder / "a.tar") {
    std::filesystem::create_directories(folder);
    const std::string png = png_of(picture(6, 6));
    valid_ =
        tar_entry("x/", "", {.type = '5'}) + tar_entry("x/1.cls", "2") + tar_entry("x/1.png", png) +
        tar_entry("pax", dataset::pax_record("path", "x/2.cls") + dataset::pax_record("size", "1"),
                  {.type = 'x'}) +
        tar_entry("short", "1") +
        tar_entry("././@LongLink", std::string("x/2.jpg\0", 8), {.type = 'L', .gnu = true}) +
        tar_entry("short", jpeg_of(picture(6, 6)), {.gnu = true}) +
        tar_entry("x/3.json", R"({"label": 1})") + tar_entry("x/3.png", png) + tar_end();
  }
  std::string name() const override { return "tar"; }

  void write(Random& random) override {
    const std::string bytes = damaged(random);
    put_file(path_, bytes);
    cut_ = random.below(bytes.size() + 1);
  }

  void read() override {
    expect_refusal_or_sense([&] {
      const auto source = dataset::open_image_tar({path_}, {.size = 4});
      use(*source);
      std::filesystem::resize_file(path_, cut_);
      use(*source);
    });
  }

 protected:
  // An archive with mistakes.
  std::string damaged(Random& random) const {
    constexpr size_t kBlock = 512;
    std::string bytes = valid_;
    for (size_t count = 1 + random.below(3); count > 0; --count) {
      const size_t header = random.below(valid_.size() / kBlock) * kBlock;
      const size_t fields[] = {0, 100, 124, 148, 156, 257, 345};
      switch (random.below(5)) {
        case 0: put_edge(bytes, header + random.pick(fields) + random.below(8), 8, random); break;
        case 1:
          if (header + 135 < bytes.size()) bytes.replace(header + 124, 11, digits(random));
          break;
        case 2:
          if (header + 156 < bytes.size()) {
            bytes[header + 156] = "0125xLKg7S"[random.below(10)];
          }
          break;
        case 3: bytes.resize(std::min(bytes.size(), random.below(valid_.size() + 1))); break;
        default: damage_bytes(bytes, random); break;
      }
    }
    // Every block that looks like a header gets the checksum that it has.
    for (size_t at = 0; at + kBlock <= bytes.size() && !random.one_in(20); at += kBlock) {
      if (bytes.compare(at + 257, 5, "ustar") == 0) dataset::sum_header(bytes, at);
    }
    return bytes;
  }

 private:
  static std::string digits(Random& random) {
    std::string text = std::to_string(edge_number(random));
    std::ranges::replace(text, '8', '7');
    std::ranges::replace(text, '9', '7');
    text.insert(0, text.size() < 11 ? 11 - text.size() : 0, '0');
    return text.substr(text.size() - 11);
  }

  std::filesystem::path path_;
  std::string valid_;
  size_t cut_ = 0;
};

// Archives in a bucket and on a web server, with a list of their names.
class StoredShards : public TarShard {
 public:
  using TarShard::TarShard;
  std::string name() const override { return "tar-store"; }

  void write(Random& random) override {
    store_ = std::make_shared<dataset::MemoryStore>();
    store_->put("x/train/0.tar", random.one_in(2) ? damaged(random) : "");
    store_->put("x/train/1.tar", damaged(random));
    std::string list = "0.tar\n1.tar\r\n\n";
    damage_text(list, random);
    if (!random.one_in(3)) store_->put("x/train/shards.txt", random.one_in(3) ? "1.tar" : list);
    other_ = damaged(random);
    has_new_version_ = random.one_in(2);
  }

  void read() override {
    expect_refusal_or_sense([&] {
      const auto tree = dataset::store_tree("s3://bucket/x", store_);
      const auto source = dataset::open_image_tar(*tree, "train", {.size = 4});
      use(*source);
      store_->put("x/train/1.tar", other_, has_new_version_ ? "\"2\"" : "\"1\"");
      use(*source);
    });
  }

 private:
  std::shared_ptr<dataset::MemoryStore> store_;
  std::string other_;
  bool has_new_version_ = false;
};

}  // namespace

void add_image_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<EncodedImage>(true));
  formats.push_back(std::make_unique<EncodedImage>(false));
  formats.push_back(std::make_unique<ImageTree>(folder / "tree"));
  formats.push_back(std::make_unique<TarShard>(folder / "tar"));
  formats.push_back(std::make_unique<StoredShards>(folder / "tar-store"));
}

}  // namespace trireme::hostile
