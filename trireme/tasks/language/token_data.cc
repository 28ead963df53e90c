#include "trireme/tasks/language/token_data.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/dataset/conversation/pair_source.h"
#include "trireme/dataset/packed_source.h"
#include "trireme/dataset/token_source.h"
#include "trireme/model/model.h"

namespace trireme::tasks {

static_assert(dataset::kNoTarget == model::kIgnoredTarget);

void check_token_path(const std::string& given) {
  namespace fs = std::filesystem;
  const fs::path path = given;
  std::error_code unknown;
  const fs::path tokens = given + ".bin";
  if (fs::exists(tokens, unknown)) return;
  const bool has_ending = path.extension() == ".bin" || path.extension() == ".idx";
  TRIREME_CHECK(!has_ending || !fs::exists(path, unknown), "data.path is ", given,
                ", a file; expected what its name begins with: ",
                fs::path(path).replace_extension().string());
  std::vector<std::string> prefixes;
  for (const fs::directory_entry& file : fs::directory_iterator(path, unknown)) {
    const bool is_training = file.path().extension() == ".idx" &&
                             !file.path().stem().string().ends_with(".validation") &&
                             !file.path().stem().string().ends_with(".loss");
    if (is_training) prefixes.push_back(fs::path(file.path()).replace_extension().string());
  }
  std::ranges::sort(prefixes);
  TRIREME_CHECK(prefixes.empty(), "data.path is ", given,
                ", a folder; expected the data in it: ", joined(prefixes));
  throw ConfigError(concat("data.path is ", given, ", and there is no ", tokens.string(),
                           "; make it with `trireme data prepare --output ", given, "`"));
}

std::shared_ptr<const dataset::TokenSamples> open_tokens(const std::string& prefix,
                                                         const LanguageConfig& config) {
  const dataset::TokenOptions options{.sequence_length = config.model.sequence_length,
                                      .vocab_size = config.model.vocab_size,
                                      .documents = config.data.separate_documents,
                                      .ahead = config.data.masked_share > 0 ? 0 : 1};
  dataset::TokenStream stream(prefix, options.vocab_size);
  const bool is_dpo = config.objective.is_dpo();
  TRIREME_CHECK(stream.has_pairs() == is_dpo, dataset::idx_path(prefix).string(), " has ",
                is_dpo ? "no pairs" : "pairs", " of answers, and objective.name is \"",
                name_of(kObjectives, config.objective.name), "\"; ",
                is_dpo ? "make them with `trireme data prepare --format preference`"
                       : "set it to \"dpo\", or prepare other data");
  if (is_dpo) return std::make_shared<const dataset::PairSource>(std::move(stream), options);
  std::shared_ptr<const dataset::TokenSamples> samples;
  if (config.data.packing == dataset::Packing::kWhole) {
    samples = std::make_shared<const dataset::PackedSource>(std::move(stream), options);
  } else {
    samples = std::make_shared<const dataset::TokenSource>(std::move(stream), options);
  }
  if (config.data.masked_share == 0) return samples;
  return std::make_shared<const dataset::MaskedSamples>(
      std::move(samples), dataset::MaskOptions{.share = config.data.masked_share,
                                               .mask_token = config.data.mask_token,
                                               .vocab_size = config.model.vocab_size});
}

}  // namespace trireme::tasks
