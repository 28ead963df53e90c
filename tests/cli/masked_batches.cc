// Writes the batches that training of a masked language model reads, for the tests that train the
// same model elsewhere: masked_batches PREFIX T VOCABULARY MASK_TOKEN SHARE SEED STEPS BATCH. For
// each step tokens and then targets, [BATCH, T] int64 each. STEPS 0: the first BATCH samples of an
// evaluation.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/dataset/batch_loader.h"
#include "trireme/dataset/token_source.h"
#include "trireme/dataset/token_stream.h"

namespace {

void write(const at::Tensor& numbers) {
  std::fwrite(numbers.const_data_ptr<int64_t>(), sizeof(int64_t),
              static_cast<size_t>(numbers.numel()), stdout);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace trireme::dataset;
  if (argc != 9) return 2;
  const auto number = [&](int i) { return int64_t{std::atoll(argv[i])}; };
  const int64_t vocab_size = number(3), steps = number(7), batch = number(8);
  const MaskedSamples samples(
      std::make_shared<const TokenSource>(
          std::string(argv[1]),
          TokenOptions{.sequence_length = number(2), .vocab_size = vocab_size, .ahead = 0}),
      {.share = std::atof(argv[5]), .mask_token = number(4), .vocab_size = vocab_size});
  const BatchLoader loader(samples, {.global_batch = batch,
                                     .micro_batch = batch,
                                     .seed = static_cast<uint64_t>(number(6)),
                                     .shuffle = steps > 0});
  for (int64_t step = 0; step < std::max<int64_t>(steps, 1); ++step) {
    const Batch read = loader.microbatch(step, 0);
    write(read["tokens"]);
    write(read["targets"]);
  }
  return 0;
}
