#include "trireme/tasks/language/token_data.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/dataset/conversation/pair_source.h"
#include "trireme/dataset/labelled/labelled_source.h"
#include "trireme/dataset/samples/blended_source.h"
#include "trireme/dataset/samples/image_samples.h"
#include "trireme/dataset/samples/packed_source.h"
#include "trireme/dataset/samples/span_source.h"
#include "trireme/dataset/token_source.h"
#include "trireme/model/model.h"
#include "trireme/remote/store_files.h"
#include "trireme/remote/store_settings.h"
#include "trireme/remote/url.h"

namespace trireme::tasks {

static_assert(dataset::kNoTarget == model::kIgnoredTarget);

namespace {

// All names of files that [data] has.
std::vector<std::string> all_paths(const TokenDataConfig& data) {
  std::vector<std::string> paths;
  const auto add = [&paths](const DataFiles& files) {
    for (const dataset::ListedSource& file : files.files) paths.push_back(file.path);
  };
  add(training_files(data));
  if (!data.validation_sets.empty()) add(validation_files(data, local_files()));
  return paths;
}

// Of lists that have both: URLs are in stores, other names on this machine.
class StoresAndDisks : public FilePlace {
 public:
  explicit StoresAndDisks(remote::StoreFiles stores) : stores_(std::move(stores)) {}
  std::unique_ptr<ByteSource> find(const std::string& name) const override {
    return place_of(name).find(name);
  }
  std::unique_ptr<ByteSource> open(const std::string& name) const override {
    return place_of(name).open(name);
  }
  void cancel() const override { stores_.cancel(); }

 private:
  const FilePlace& place_of(const std::string& name) const {
    return is_url(name) ? static_cast<const FilePlace&>(stores_) : local_files();
  }
  remote::StoreFiles stores_;
};

}  // namespace

std::shared_ptr<const FilePlace> open_place(const TokenDataConfig& data) {
  if (std::ranges::none_of(all_paths(data), is_url)) {
    return {std::shared_ptr<void>(), &local_files()};
  }
  std::optional<remote::BlockCacheOptions> cache;
  if (!data.cache.empty()) {
    cache = {.folder = data.cache, .max_bytes = static_cast<uint64_t>(data.cache_bytes)};
  }
  remote::StoreOptions options{.patience = std::chrono::seconds(data.store_timeout)};
  options.first_patience = std::min(options.first_patience, options.patience);
  return std::make_shared<const StoresAndDisks>(
      remote::StoreFiles(remote::read_store_settings(), options, cache));
}

void check_place(const TokenDataConfig& data) {
  for (const std::string& path : all_paths(data)) {
    if (!is_url(path)) continue;
    try {
      remote::parse_url(path);
    } catch (const ConfigError& error) {
      throw ConfigError(concat(path == data.path ? "data.path" : "[data]", ": ", error.what()));
    }
  }
}

namespace {

std::string extra_id(int64_t number) { return concat("<extra_id_", number, ">"); }

dataset::SpanLengths lengths_of(const LanguageConfig& config) {
  return dataset::span_lengths(config.model.sequence_length, config.data.masked_share,
                               config.data.span_length);
}

dataset::SpanOptions span_options(const LanguageConfig& config) {
  return {.lengths = lengths_of(config),
          .sentinel = config.data.sentinel_token,
          .end = config.data.end_token,
          .start = config.data.start_token};
}

void check_token(const char* key, int64_t token, int64_t vocab_size) {
  TRIREME_CHECK(vocab_size == 0 || token < vocab_size, key, " is ", token, " and model.vocab_size ",
                vocab_size,
                "; expected a token of the vocabulary: lower it, or raise model.vocab_size");
}

}  // namespace

// An image that is cut in two would have no features.
void check_images(const LanguageConfig& config) {
  if (!config.model.vision.is_on()) return;
  TRIREME_CHECK(config.data.packing == dataset::Packing::kWhole, "vision.layers is ",
                config.model.vision.layers, " and data.packing \"",
                name_of(dataset::kPackings, config.data.packing),
                "\", which cuts images in two; set data.packing to \"whole\"");
  TRIREME_CHECK(config.objective.name == Objective::kNextToken, "vision.layers is ",
                config.model.vision.layers, " and objective.name \"",
                name_of(kObjectives, config.objective.name),
                "\", which reads text only; leave objective.name out");
}

// A router sees padding as tokens, and these would count in what all tokens share.
void check_padding(const LanguageConfig& config) {
  const model::ExpertConfig& sparse = config.model.sparse;
  const bool counts_tokens = sparse.balance_loss > 0 || sparse.router_z_loss > 0 ||
                             sparse.capacity_factor > 0 || sparse.router_bias_rate > 0;
  const bool is_whole = config.data.packing == dataset::Packing::kWhole;
  TRIREME_CHECK(!(is_whole || config.objective.is_dpo()) || sparse.experts == 0 || !counts_tokens,
                is_whole ? "data.packing is \"whole\"" : "objective.name is \"dpo\"",
                ", and model.balance_loss is ", sparse.balance_loss, ", model.router_z_loss ",
                sparse.router_z_loss, ", model.capacity_factor ", sparse.capacity_factor,
                " and model.router_bias_rate ", sparse.router_bias_rate,
                ", in which padding would count; expected 0 each: set them so",
                is_whole ? ", or data.packing to \"stream\"" : "");
}

void check_masking(const LanguageConfig& config) {
  const TokenDataConfig& data = config.data;
  const std::string& family = config.model.family;
  TRIREME_CHECK(data.masked_share > 0 || config.model.is_causal() || config.objective.is_classify(),
                "data.masked_share is 0 and model.family \"", family,
                "\", whose tokens read those behind them, so that the next one is no secret; set "
                "data.masked_share, such as to 0.15, or objective.name to \"classify\"");
  TRIREME_CHECK(data.masked_share == 0 || !config.model.is_causal(), "data.masked_share is ",
                data.masked_share, " and model.family \"", family,
                "\", whose tokens read only those before them; set data.masked_share to 0, or "
                "model.family to \"bert\" or \"t5\"");
  TRIREME_CHECK(data.masked_share > 0 || data.mask_token < 0, "data.mask_token is ",
                data.mask_token,
                " and data.masked_share 0, so that no token is hidden; leave it out");
}

void check_spans(const LanguageConfig& config) {
  const TokenDataConfig& data = config.data;
  const std::string& family = config.model.family;
  if (!config.model.has_decoder()) {
    TRIREME_CHECK(data.sentinel_token < 0 && data.end_token < 0 && data.start_token == 0 &&
                      data.span_length == TokenDataConfig{}.span_length,
                  "data.sentinel_token is ", data.sentinel_token, ", data.end_token ",
                  data.end_token, ", data.start_token ", data.start_token, " and data.span_length ",
                  data.span_length, ", and model.family \"", family,
                  "\", which has no decoder that writes hidden spans; leave them out, or set "
                  "model.family to \"t5\"");
    return;
  }
  TRIREME_CHECK(data.packing == dataset::Packing::kStream && !data.separate_documents,
                "data.packing is \"", name_of(dataset::kPackings, data.packing),
                "\" and data.separate_documents ", data.separate_documents ? "true" : "false",
                ", and model.family \"", family,
                "\", which hides spans of a stream of tokens; expected \"stream\" and false");
  TRIREME_CHECK(data.mask_token < 0, "data.mask_token is ", data.mask_token, " and model.family \"",
                family, "\", whose hidden spans have sentinels; set data.sentinel_token instead");
  const dataset::SpanLengths lengths = lengths_of(config);
  const int64_t length = config.model.seq2seq.target_length;
  TRIREME_CHECK(length == 0 || length == lengths.targets, "model.target_length is ", length,
                ", and targets of span corruption have ", lengths.targets,
                " tokens with model.sequence_length ", config.model.sequence_length,
                ", data.masked_share ", data.masked_share, " and data.span_length ",
                data.span_length, "; set it to 0 or to that");
}

namespace {

void settle_spans(LanguageConfig& config, const dataset::Tokenizer& tokenizer) {
  TokenDataConfig& data = config.data;
  const dataset::SpanLengths lengths = lengths_of(config);
  config.model.seq2seq.target_length = lengths.targets;
  if (data.end_token < 0) data.end_token = tokenizer.end_of_document();
  if (data.sentinel_token < 0) {
    const std::optional<int32_t> first = tokenizer.added_token(extra_id(0));
    TRIREME_CHECK(first, "data.sentinel_token is -1, and the tokenizer of ", data.name(),
                  " has no ", extra_id(0), "; set it to the last of ", lengths.spans,
                  " tokens that no text has, such as ", tokenizer.vocab_size() + lengths.spans - 1,
                  ", where they are behind the tokenizer's");
    data.sentinel_token = *first;
    const std::optional<int32_t> last = tokenizer.added_token(extra_id(lengths.spans - 1));
    TRIREME_CHECK(last && *last == *first - lengths.spans + 1, "model.sequence_length is ",
                  config.model.sequence_length, ", whose text has ", lengths.spans,
                  " hidden spans, and the tokenizer of ", data.name(), " has no ",
                  extra_id(lengths.spans - 1), " so many tokens before ", extra_id(0),
                  "; shorten the sequences, raise data.span_length, or set data.sentinel_token");
  }
  TRIREME_CHECK(data.sentinel_token + 1 >= lengths.spans, "data.sentinel_token is ",
                data.sentinel_token, ", from which ", lengths.spans,
                " sentinels count down; expected at least ", lengths.spans - 1);
  const int64_t vocab_size = config.model.vocab_size;
  check_token("data.sentinel_token", data.sentinel_token, vocab_size);
  check_token("data.end_token", data.end_token, vocab_size);
  check_token("data.start_token", data.start_token, vocab_size);
}

void settle_mask(LanguageConfig& config, const dataset::Tokenizer& tokenizer) {
  int64_t& mask_token = config.data.mask_token;
  if (mask_token < 0) mask_token = tokenizer.mask_token().value_or(-1);
  TRIREME_CHECK(mask_token >= 0, "data.mask_token is -1, and the tokenizer of ", config.data.name(),
                " has no [MASK] or <mask>; set it to a token that no text has, such as ",
                tokenizer.vocab_size(), ", which is behind the tokenizer's");
  check_token("data.mask_token", mask_token, config.model.vocab_size);
}

}  // namespace

void settle_tokens(LanguageConfig& config, const dataset::Tokenizer& tokenizer) {
  if (config.model.has_decoder()) {
    settle_spans(config, tokenizer);
  } else if (config.data.masked_share > 0) {
    settle_mask(config, tokenizer);
  }
  const TokenDataConfig& data = config.data;
  int64_t& vocab_size = config.model.vocab_size;
  const int64_t needed = tokenizer.vocab_size();
  // The mask token and sentinels may be behind the tokenizer's.
  if (vocab_size == 0) {
    vocab_size = std::max({needed, data.mask_token + 1, data.sentinel_token + 1, data.end_token + 1,
                           data.start_token + 1});
  }
  TRIREME_CHECK(vocab_size >= needed, "model.vocab_size is ", vocab_size, "; the tokenizer of ",
                data.name(), " has ", needed, " tokens: set it to 0 or to at least that");
}

namespace {

std::shared_ptr<const dataset::TokenSamples> open_prefix(const std::string& prefix,
                                                         const FilePlace& place,
                                                         const LanguageConfig& config) {
  dataset::TokenOptions options{.sequence_length = config.model.sequence_length,
                                .vocab_size = config.model.vocab_size,
                                .documents = config.data.separate_documents,
                                .ahead = config.data.masked_share > 0 ? 0 : 1};
  const bool has_spans = config.model.has_decoder();
  if (has_spans) options.sequence_length = span_options(config).lengths.text;
  dataset::TokenStream stream(prefix, options.vocab_size, place);
  TRIREME_CHECK(!has_spans || stream.mask() == nullptr, dataset::idx_path(prefix).string(),
                " has a loss mask, and model.family \"", config.model.family,
                "\" hides spans of all tokens; prepare the data as text");
  const bool is_classify = config.objective.is_classify();
  TRIREME_CHECK((stream.labels() != nullptr) == is_classify, dataset::idx_path(prefix).string(),
                " has ", is_classify ? "no labels" : "labels", ", and objective.name is \"",
                name_of(kObjectives, config.objective.name), "\"; ",
                is_classify ? "make them with `trireme data prepare --format labelled`"
                            : "set it to \"classify\", or prepare other data");
  if (is_classify) {
    return std::make_shared<const dataset::LabelledSource>(std::move(stream), options,
                                                           config.model.classes);
  }
  const bool is_dpo = config.objective.is_dpo();
  TRIREME_CHECK(stream.has_pairs() == is_dpo, dataset::idx_path(prefix).string(), " has ",
                is_dpo ? "no pairs" : "pairs", " of answers, and objective.name is \"",
                name_of(kObjectives, config.objective.name), "\"; ",
                is_dpo ? "make them with `trireme data prepare --format preference`"
                       : "set it to \"dpo\", or prepare other data");
  if (is_dpo) return std::make_shared<const dataset::PairSource>(std::move(stream), options);
  if (config.model.vision.is_on()) {
    const model::VisionConfig& vision = config.model.vision;
    return std::make_shared<const dataset::ImageTextSamples>(
        std::make_shared<const dataset::PackedSource>(std::move(stream), options), options,
        dataset::ImageTokenOptions{.image_token = vision.image_token,
                                   .tokens_per_image = vision.num_patches(),
                                   .image_size = vision.image_size},
        place);
  }
  std::shared_ptr<const dataset::TokenSamples> samples;
  if (config.data.packing == dataset::Packing::kWhole) {
    samples = std::make_shared<const dataset::PackedSource>(std::move(stream), options);
  } else {
    samples = std::make_shared<const dataset::TokenSource>(std::move(stream), options);
  }
  if (has_spans)
    return std::make_shared<const dataset::SpanSamples>(std::move(samples), span_options(config));
  if (config.data.masked_share == 0) return samples;
  return std::make_shared<const dataset::MaskedSamples>(
      std::move(samples), dataset::MaskOptions{.share = config.data.masked_share,
                                               .mask_token = config.data.mask_token,
                                               .vocab_size = config.model.vocab_size});
}

}  // namespace

std::vector<NamedSamples> open_tokens(const DataFiles& files, const FilePlace& place,
                                      const LanguageConfig& config) {
  std::vector<NamedSamples> found;
  for (const dataset::ListedSource& file : files.files) {
    found.push_back({file.name, open_prefix(file.path, place, config)});
  }
  return found;
}

std::shared_ptr<const dataset::Source> open_training(const DataFiles& files, const FilePlace& place,
                                                     const LanguageConfig& config) {
  std::vector<NamedSamples> opened = open_tokens(files, place, config);
  if (config.data.sources.empty()) return std::move(opened.front().samples);
  std::vector<dataset::BlendedSource::Part> parts;
  for (size_t i = 0; i < opened.size(); ++i) {
    const dataset::TokenSamples& samples = *opened[i].samples;
    const std::string more = samples.description();
    parts.push_back({.name = opened[i].name,
                     .about = concat(samples.stream().file().num_tokens(), " tokens",
                                     more.empty() ? "" : ", ", more),
                     .weight = files.files[i].weight,
                     .samples = std::move(opened[i].samples)});
  }
  return std::make_shared<const dataset::BlendedSource>(std::move(parts),
                                                        config.data.repeat_sources);
}

const dataset::TokenSamples* tokens_of(const dataset::Source* source) {
  return dynamic_cast<const dataset::TokenSamples*>(source);
}

void check_sources(const LanguageConfig& config, const train::RunConfig& run) {
  const TokenDataConfig& data = config.data;
  const bool has_path = !data.path.empty() && data.path != TokenDataConfig().path;
  TRIREME_CHECK(!has_path || data.sources.empty(), "data.path is \"", shown(data.path),
                "\" and data.sources \"", shown(data.sources), "\"; set one of them");
  TRIREME_CHECK(data.repeat_sources || !data.sources.empty(),
                "data.repeat_sources is false and data.sources empty; set data.sources, or leave "
                "data.repeat_sources out");
  if (!data.sources.empty()) training_files(data);
  if (!data.validation_sets.empty()) validation_files(data, local_files());
  if (data.sources.empty() && data.validation_sets.empty()) return;
  const char* const key = data.sources.empty() ? "data.validation_sets" : "data.sources";
  const Objective objective = config.objective.name;
  TRIREME_CHECK(objective == Objective::kNextToken || objective == Objective::kDistill, key,
                " is set and objective.name \"", name_of(kObjectives, objective),
                "\", whose data is of data.path; leave ", key, " out");
  TRIREME_CHECK(!config.model.vision.is_on(), key, " is set and vision.layers ",
                config.model.vision.layers, ", whose images are of data.path; leave ", key, " out");
  TRIREME_CHECK(data.sources.empty() || run.data.last_batch == dataset::LastBatch::kFill,
                "data.last_batch is \"", name_of(dataset::kLastBatches, run.data.last_batch),
                "\" and data.sources is set, whose sources end at different steps; set "
                "data.last_batch to \"fill\"");
}

}  // namespace trireme::tasks
