#include "trireme/dataset/prepare.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/random/random.h"
#include "trireme/dataset/bpe.h"
#include "trireme/dataset/documents.h"
#include "trireme/dataset/indexed_file_writer.h"
#include "trireme/dataset/token_files.h"
#include "trireme/dataset/tokenizer.h"

namespace trireme::dataset {
namespace {

struct Split {
  std::vector<Document> training;
  std::vector<Document> validation;
};

int64_t total_bytes(const std::vector<Document>& documents) {
  return std::accumulate(documents.begin(), documents.end(), int64_t{0},
                         [](int64_t sum, const Document& d) { return sum + d.size(); });
}

void check_options(const PrepareOptions& options) {
  const bool is_bytes = options.tokenizer == TokenizerKind::kBytes;
  TRIREME_CHECK(!is_bytes || options.vocab_size == 0 || options.vocab_size == 257, "vocab_size is ",
                options.vocab_size,
                ", but tokenizer bytes always has 257; leave it out or use --tokenizer bpe");
  TRIREME_CHECK(!is_bytes || options.tokenizer_model.empty(),
                "a tokenizer model is given, but tokenizer is bytes; use --tokenizer bpe or json");
  const bool is_json = options.tokenizer == TokenizerKind::kJson;
  TRIREME_CHECK(!is_json || !options.tokenizer_model.empty(),
                "tokenizer json has no file; give a tokenizer.json with --tokenizer-model");
  TRIREME_CHECK(is_json || options.end_of_document.empty(), "end_of_document is \"",
                shown(options.end_of_document),
                "\", but only tokenizer json has a choice; leave out --end-of-document");
  TRIREME_CHECK(options.vocab_size >= 0 && options.vocab_size <= INT32_MAX, "vocab_size is ",
                options.vocab_size, ", expected 1 to ", INT32_MAX);
  TRIREME_CHECK(options.validation_fraction >= 0 && options.validation_fraction < 1,
                "validation_fraction is ", options.validation_fraction,
                ", expected at least 0 and below 1");
  TRIREME_CHECK(!options.output.empty() && options.output.back() != '/', "output is \"",
                options.output, "\", expected a prefix of file names such as data/python");
}

// For a single document: its tail, from a line end on.
Split split_tail(const Document& document, double fraction) {
  auto cut = document.begin +
             static_cast<int64_t>(static_cast<double>(document.size()) * (1.0 - fraction));
  Document around = document;
  around.begin = cut;
  constexpr int64_t kWindowBytes = 1 << 16;
  around.end = std::min(document.end, cut + kWindowBytes);
  const std::string window = DocumentReader(around).next();
  const size_t line = window.find('\n');
  if (line != std::string::npos && cut + static_cast<int64_t>(line) + 1 < document.end)
    cut += static_cast<int64_t>(line) + 1;
  TRIREME_CHECK(cut > document.begin && cut < document.end, document.path.string(), " has ",
                document.size(), " bytes, too few to set ", fraction,
                " of them aside; give more text or set validation_fraction to 0");
  Split split{{document}, {document}};
  split.training[0].end = cut;
  split.validation[0].begin = cut;
  return split;
}

Split split_documents(std::vector<Document> documents, double fraction, uint64_t seed) {
  if (fraction == 0) return {std::move(documents), {}};
  if (documents.size() == 1) return split_tail(documents[0], fraction);
  std::vector<double> draws;
  for (const Document& document : documents)
    draws.push_back(random_uniform(random_key(seed, "validation/" + document.name), 0));
  // At least one document on either side.
  const auto lowest = std::min_element(draws.begin(), draws.end());
  const auto highest = std::max_element(draws.rbegin(), draws.rend());
  *lowest = 0.0;
  *highest = 1.0;
  Split split;
  for (size_t i = 0; i < documents.size(); ++i)
    (draws[i] < fraction ? split.validation : split.training).push_back(std::move(documents[i]));
  return split;
}

// Blocks of the training text: all of it, or about `sample_bytes` spread evenly over it.
std::function<std::string()> sample_text(const std::vector<Document>& documents,
                                         const PrepareOptions& options) {
  constexpr int64_t kBlockBytes = 1 << 16;
  const double share = static_cast<double>(options.tokenizer_sample_bytes) /
                       static_cast<double>(total_bytes(documents));
  return [&documents, seed = options.seed, share, i = size_t{0}, block = int64_t{0}]() mutable {
    for (; i < documents.size(); ++i, block = 0) {
      const RandomKey key = random_key(seed, "tokenizer/" + documents[i].name);
      while (block * kBlockBytes < documents[i].size()) {
        Document part = documents[i];
        part.begin += block * kBlockBytes;
        part.end = std::min(part.end, part.begin + kBlockBytes);
        if (random_uniform(key, block++) < share) return DocumentReader(part).next();
      }
    }
    return std::string();
  };
}

std::unique_ptr<Tokenizer> choose_tokenizer(const PrepareOptions& options, const Split& split) {
  if (options.tokenizer == TokenizerKind::kBytes) return make_bytes_tokenizer();
  if (options.tokenizer_model.empty()) {  // bpe: json has one
    constexpr int64_t kDefaultVocabSize = 8192;
    const int64_t vocab_size = options.vocab_size > 0 ? options.vocab_size : kDefaultVocabSize;
    return make_bpe_tokenizer(train_bpe(sample_text(split.training, options), vocab_size));
  }
  std::string model;
  try {
    model = read_file(options.tokenizer_model);
  } catch (const Error& error) {
    throw ConfigError(concat("tokenizer model: ", error.what()));
  }
  auto tokenizer = options.tokenizer == TokenizerKind::kJson
                       ? make_json_tokenizer(std::move(model), options.end_of_document)
                       : make_bpe_tokenizer(std::move(model));
  TRIREME_CHECK(options.vocab_size == 0 || options.vocab_size == tokenizer->vocab_size(),
                "vocab_size is ", options.vocab_size, ", but ", options.tokenizer_model, " has ",
                tokenizer->vocab_size(), "; leave it out");
  return tokenizer;
}

// Encodes documents into a token file and counts the encoded bytes.
class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, bool append_end_of_document,
          std::function<void(int64_t)> on_bytes)
      : tokenizer_(tokenizer), append_(append_end_of_document), on_bytes_(std::move(on_bytes)) {}

  void encode(const std::vector<Document>& documents, IndexedFileWriter& writer) {
    for (const Document& document : documents) {
      DocumentReader reader(document);
      for (std::string piece = reader.next(); !piece.empty(); piece = reader.next()) {
        const std::vector<int32_t> tokens = tokenizer_.encode(piece);
        if (const auto unknown = tokenizer_.unknown_token())
          unknown_tokens_ += std::ranges::count(tokens, *unknown);
        writer.append(tokens);
        on_bytes_(static_cast<int64_t>(piece.size()));
      }
      const int32_t end = tokenizer_.end_of_document();
      if (append_) writer.append({&end, 1});
      writer.end_document();
    }
  }

  int64_t unknown_tokens() const { return unknown_tokens_; }

 private:
  const Tokenizer& tokenizer_;
  bool append_;
  std::function<void(int64_t)> on_bytes_;
  int64_t unknown_tokens_ = 0;
};

}  // namespace

std::string validation_prefix(const std::string& prefix) { return prefix + ".validation"; }

PrepareReport prepare(const PrepareOptions& options,
                      const std::function<void(int64_t, int64_t)>& progress) {
  check_options(options);
  const DocumentOptions wanted = {.inputs = options.inputs,
                                  .globs = options.globs,
                                  .excludes = options.excludes,
                                  .ignored = prepared_paths(options.output),
                                  .as_text = options.as_text};
  std::vector<Document> documents = find_documents(wanted);
  std::optional<WorkFolder> work;  // keeps another prepare() away from this output
  const auto take_output = [&] {
    make_prefix_folder(options.output);
    if (!work) work.emplace(options.output);
  };
  if (std::ranges::any_of(documents, &Document::is_pipe)) {
    take_output();
    keep_pipes(documents, wanted, work->path());
  }
  const Split split =
      split_documents(std::move(documents), options.validation_fraction, options.seed);
  const int64_t bytes = total_bytes(split.training) + total_bytes(split.validation);

  // Training the tokenizer takes a while, so check first that the output can be written at all.
  take_output();
  { const IndexedFileWriter probe(options.output, 1); }
  const auto tokenizer = choose_tokenizer(options, split);

  int64_t done = 0;
  Encoder encoder(*tokenizer, options.append_end_of_document, [&](int64_t n) {
    done += n;
    if (progress) progress(done, bytes);
  });
  TokenFile training(options.output, tokenizer->vocab_size(), /*has_mask=*/false);
  encoder.encode(split.training, training.tokens());
  std::optional<TokenFile> validation;
  if (!split.validation.empty()) {
    validation.emplace(validation_prefix(options.output), tokenizer->vocab_size(), false);
    encoder.encode(split.validation, validation->tokens());
  }
  publish_token_files(options.output, *tokenizer, training, validation ? &*validation : nullptr);

  PrepareReport report;
  report.tokenizer = tokenizer->kind();
  report.vocab_size = tokenizer->vocab_size();
  report.documents = training.tokens().num_documents();
  report.tokens = training.tokens().num_tokens();
  report.validation_documents = validation ? validation->tokens().num_documents() : 0;
  report.validation_tokens = validation ? validation->tokens().num_tokens() : 0;
  report.bytes = bytes;
  report.unknown_tokens = encoder.unknown_tokens();
  const int64_t tokens = report.tokens + report.validation_tokens;
  report.bytes_per_token = static_cast<double>(bytes) / static_cast<double>(tokens);
  return report;
}

}  // namespace trireme::dataset
