// Writes the batches that training of a masked language model reads, for the tests that train the
// same model elsewhere: masked_batches PREFIX T VOCABULARY MASK_TOKEN SHARE SEED STEPS BATCH. For
// each step tokens and then targets, [BATCH, T] int64 each. STEPS 0: the first BATCH samples of an
// evaluation. With SPAN_LENGTH, END and START behind these, the spans of span corruption are
// hidden, whose first sentinel is MASK_TOKEN: tokens [BATCH, T], decoder tokens and targets [BATCH,
// U].
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/dataset/batch_loader.h"
#include "trireme/dataset/samples/span_source.h"
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
  const bool has_spans = argc == 12;
  if (argc != 9 && !has_spans) return 2;
  const auto number = [&](int i) { return int64_t{std::atoll(argv[i])}; };
  const int64_t vocab_size = number(3), steps = number(7), batch = number(8);
  const double share = std::atof(argv[5]);
  TokenOptions options{.sequence_length = number(2), .vocab_size = vocab_size, .ahead = 0};
  SpanOptions spans;
  if (has_spans) {
    spans = {.lengths = span_lengths(options.sequence_length, share, std::atof(argv[9])),
             .sentinel = number(4),
             .end = number(10),
             .start = number(11)};
    options.sequence_length = spans.lengths.text;
  }
  auto text = std::make_shared<const TokenSource>(std::string(argv[1]), options);
  std::unique_ptr<const TokenSamples> samples;
  if (has_spans) {
    samples = std::make_unique<const SpanSamples>(text, spans);
  } else {
    samples = std::make_unique<const MaskedSamples>(
        text, MaskOptions{.share = share, .mask_token = number(4), .vocab_size = vocab_size});
  }
  const BatchLoader loader(*samples, {.global_batch = batch,
                                      .micro_batch = batch,
                                      .seed = static_cast<uint64_t>(number(6)),
                                      .shuffle = steps > 0});
  for (int64_t step = 0; step < std::max<int64_t>(steps, 1); ++step) {
    const Batch read = loader.microbatch(step, 0);
    write(read["tokens"]);
    if (has_spans) write(read["decoder_tokens"]);
    write(read["targets"]);
  }
  return 0;
}
