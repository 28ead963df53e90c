// Writes the batches that training of a diffusion model reads, for the tests that train the same
// model elsewhere: noised_batches FOLDER TIMESTEPS DROPOUT SEED STEPS BATCH, of MNIST's files. For
// each step images [BATCH, C, H, W] uint8, labels and timesteps [BATCH] int64, and noise
// [BATCH, C, H, W] fp32. STEPS 0: the first BATCH samples of an evaluation; STEPS -1: the noise
// that BATCH images of a sampling begin with.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/dataset/batch_loader.h"
#include "trireme/dataset/image/image_records.h"
#include "trireme/dataset/image/noised_images.h"

int main(int argc, char** argv) {
  using namespace trireme::dataset;
  if (argc != 7) return 2;
  const auto number = [&](int i) { return int64_t{std::atoll(argv[i])}; };
  const int64_t steps = number(5), batch = number(6);
  const std::filesystem::path folder = argv[1];
  const char* const part = steps > 0 ? "train" : "t10k";
  std::shared_ptr<const ImageSource> images =
      open_idx(folder / (std::string(part) + "-images-idx3-ubyte"),
               folder / (std::string(part) + "-labels-idx1-ubyte"), /*num_classes=*/0, nullptr);
  const auto classes = static_cast<int64_t>(images->classes().size());
  if (steps < 0) {
    for (int64_t i = 0; i < batch; ++i) {
      const at::Tensor noise = sampling_noise(static_cast<uint64_t>(number(4)), i, images->shape());
      std::fwrite(noise.const_data_ptr(), 1, noise.nbytes(), stdout);
    }
    return 0;
  }
  const auto samples = noised(
      images, {.timesteps = number(2), .class_dropout = std::atof(argv[3]), .null_class = classes});
  const BatchLoader loader(*samples, {.global_batch = batch,
                                      .micro_batch = batch,
                                      .seed = static_cast<uint64_t>(number(4)),
                                      .shuffle = steps > 0});
  for (int64_t step = 0; step < std::max<int64_t>(steps, 1); ++step) {
    const Batch read = loader.microbatch(step, 0);
    for (const char* name : {"image", "label", "timestep", "noise"}) {
      const at::Tensor values = read[name];
      std::fwrite(values.const_data_ptr(), 1, values.nbytes(), stdout);
    }
  }
  return 0;
}
