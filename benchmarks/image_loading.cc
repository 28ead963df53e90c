// Reads batches of images with BatchReader, and prints what that took as one line of JSON:
//   image_loading_benchmark folder|tar PATH WORKERS BATCH SIZE NUM_BATCHES
//   image_loading_benchmark scaled PATH SIZE
// The images have random resized crops and flips. benchmarks/image_loading.py compares it with
// PyTorch's DataLoader. `scaled` resizes whole JPEG files with and without the smaller sizes that
// libjpeg decodes to.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/file/file.h"
#include "trireme/dataset/batch_reader.h"
#include "trireme/dataset/image/decode.h"
#include "trireme/dataset/image/image_folder.h"
#include "trireme/dataset/image/image_tar.h"
#include "trireme/dataset/image/pixels.h"

namespace {

using trireme::dataset::BatchReader;

double cpu_seconds() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void measure(char** arguments) {
  const std::string kind = arguments[1], path = arguments[2];
  const auto number = [&](int i) { return std::atoll(arguments[i]); };
  const trireme::dataset::ImageOptions options{
      .size = number(5), .augment = {.resized_crop = true, .horizontal_flip = true}};
  const auto source = kind == "tar" ? trireme::dataset::open_image_tar({path}, options)
                                    : trireme::dataset::open_image_folder(path, options);
  const int64_t B = number(4), num_batches = number(6);
  BatchReader reader(
      *source, {.global_batch = B, .micro_batch = B},
      {.num_workers = static_cast<int>(number(3)), .num_ahead = 2, .num_steps = num_batches + 1});
  reader.read(0, 0);  // starting is not measured
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_seconds();
  for (int64_t step = 1; step <= num_batches; ++step) reader.read(step, 0);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("{\"images\": %lld, \"seconds\": %.6f, \"cpu_seconds\": %.6f}\n",
              static_cast<long long>(B * num_batches), seconds.count(), cpu_seconds() - cpu_start);
}

// Every file of a folder by class, brought to SIZE x SIZE.
void measure_scaled(char** arguments) {
  using namespace trireme::dataset;
  const int64_t size = std::atoll(arguments[3]);
  double cpu[2] = {}, difference = 0, num_values = 0;
  for (const auto& item : std::filesystem::recursive_directory_iterator(arguments[2])) {
    if (!item.is_regular_file()) continue;
    const std::string bytes = trireme::read_file(item.path());
    std::vector<uint8_t> results[2];
    for (const bool scaled : {false, true}) {
      const double start = cpu_seconds();
      const auto file = std::as_bytes(std::span(bytes));
      const Box box = whole(image_size(file, "x"));
      const ImageSize enough = scaled ? ImageSize{size, size} : ImageSize{kMostSide, kMostSide};
      const DecodedBox decoded = decode_image(file, "x", box, enough);
      results[scaled].resize(static_cast<size_t>(3 * size * size));
      resize({decoded.pixels.values.get(), decoded.pixels.size, 3}, decoded.region, {3, size, size},
             {}, results[scaled].data());
      cpu[scaled] += cpu_seconds() - start;
    }
    for (size_t i = 0; i < results[0].size(); ++i) {
      difference += std::abs(results[0][i] - results[1][i]);
      ++num_values;
    }
  }
  std::printf("{\"whole_seconds\": %.6f, \"scaled_seconds\": %.6f, \"mean_difference\": %.4f}\n",
              cpu[0], cpu[1], difference / num_values);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7 && argc != 4) {
    std::fprintf(stderr,
                 "usage: %s folder|tar PATH WORKERS BATCH SIZE NUM_BATCHES | scaled PATH SIZE\n",
                 argv[0]);
    return 2;
  }
  try {
    argc == 7 ? measure(argv) : measure_scaled(argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
