#include "trireme/tasks/language/sources/data_files.h"

#include <algorithm>
#include <utility>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/token_files.h"
#include "trireme/dataset/token_stream.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;

// "data.path is data/code", "data.sources has code=data/code".
std::string named(const std::string& key, const dataset::ListedSource& file) {
  return file.name.empty() ? concat(key, " is ", file.path)
                           : concat(key, " has ", file.name, "=", file.path);
}

void check_prefix(const std::string& what, const std::string& given) {
  if (is_url(given)) return;
  const fs::path path = given;
  std::error_code unknown;
  const fs::path tokens = given + ".bin";
  if (fs::exists(tokens, unknown)) return;
  const bool has_ending = path.extension() == ".bin" || path.extension() == ".idx";
  TRIREME_CHECK(!has_ending || !fs::exists(path, unknown), what,
                ", a file; expected what its name begins with: ",
                fs::path(path).replace_extension().string());
  std::vector<std::string> prefixes;
  for (const fs::directory_entry& file : fs::directory_iterator(path, unknown)) {
    const std::string stem = file.path().stem().string();
    const bool is_training = file.path().extension() == ".idx" && !stem.ends_with(".validation") &&
                             !dataset::is_beside_tokens(stem);
    if (is_training) prefixes.push_back(fs::path(file.path()).replace_extension().string());
  }
  std::ranges::sort(prefixes);
  TRIREME_CHECK(prefixes.empty(), what, ", a folder; expected the data in it: ", joined(prefixes));
  throw ConfigError(concat(what, ", and there is no ", tokens.string(),
                           "; make it with `trireme data prepare --output ", given, "`"));
}

// Where the tokenizer of a token file is.
std::string tokenizer_prefix(const std::string& prefix, const FilePlace& place) {
  const std::string end = dataset::validation_prefix("");
  const bool is_beside =
      prefix.ends_with(end) && !place.find(dataset::tokenizer_json_path(prefix).string());
  return is_beside ? prefix.substr(0, prefix.size() - end.size()) : prefix;
}

std::string summary(const dataset::Tokenizer& tokenizer) {
  return concat(name_of(dataset::kTokenizerKinds, tokenizer.kind()), " with ",
                tokenizer.vocab_size(), " tokens");
}

// Why two tokenizers are not one; "": they are.
std::string difference(const dataset::Tokenizer& one, const dataset::Tokenizer& other) {
  const std::string first = summary(one), second = summary(other);
  if (first != second) return concat(first, " and ", second);
  if (one.end_of_document() != other.end_of_document()) {
    return concat("documents that end in token ", one.end_of_document(), " and ",
                  other.end_of_document());
  }
  return one.serialize() == other.serialize() ? "" : concat("other tokens, both ", first);
}

}  // namespace

DataFiles training_files(const TokenDataConfig& data) {
  if (!data.sources.empty()) {
    return {"data.sources", dataset::parse_blend("data.sources", data.sources)};
  }
  TRIREME_CHECK(!data.path.empty(),
                "data.path is empty, and so is data.sources; set data.path to what `trireme data "
                "prepare --output` was given, or data.sources to several such, as in "
                "code=data/code:0.7,web=data/web:0.3");
  return {"data.path", {{.path = data.path}}};
}

DataFiles validation_files(const TokenDataConfig& data, const FilePlace& place) {
  constexpr const char* kKey = "data.validation_sets";
  if (!data.validation_sets.empty()) {
    return {kKey, dataset::parse_named_paths(kKey, data.validation_sets)};
  }
  DataFiles files = training_files(data);
  for (dataset::ListedSource& file : files.files) {
    const std::string beside = dataset::validation_prefix(file.path);
    TRIREME_CHECK(file.name.empty() || place.find(dataset::bin_path(beside).string()),
                  "train.evaluate_interval is set, and ", file.name, " of ", files.key, " has no ",
                  dataset::bin_path(beside).string(),
                  "; prepare it with --validation-fraction, or set ", kKey,
                  " to what is to be evaluated");
    file.path = beside;
  }
  return files;
}

std::string first_prefix(const TokenDataConfig& data) {
  const bool has_any = !data.path.empty() || !data.sources.empty();
  return has_any ? training_files(data).files.front().path : "";
}

void check_prefixes(const DataFiles& files) {
  for (const dataset::ListedSource& file : files.files) {
    check_prefix(named(files.key, file), file.path);
  }
}

std::shared_ptr<const dataset::Tokenizer> shared_tokenizer(const DataFiles& training,
                                                           const DataFiles& validation,
                                                           const FilePlace& place) {
  const dataset::ListedSource& first = training.files.front();
  std::shared_ptr<const dataset::Tokenizer> tokenizer = dataset::load_tokenizer(first.path, place);
  const auto compare = [&](const DataFiles& files) {
    for (const dataset::ListedSource& file : files.files) {
      const std::string prefix = tokenizer_prefix(file.path, place);
      if (prefix == first.path) continue;
      const std::string differs = difference(*tokenizer, *dataset::load_tokenizer(prefix, place));
      TRIREME_CHECK(differs.empty(), named(training.key, first), " and ", named(files.key, file),
                    ", whose tokenizers differ: ", differs,
                    "; prepare both with one, such as by --tokenizer-model");
    }
  };
  compare(training);
  compare(validation);
  return tokenizer;
}

std::string shared_chat_template(const DataFiles& training, const FilePlace& place) {
  constexpr uint64_t kMostBytes = uint64_t{256} << 20;
  std::string found, text;
  const dataset::ListedSource* owner = nullptr;
  for (const dataset::ListedSource& file : training.files) {
    const std::string path = dataset::chat_template_path(file.path).string();
    const std::unique_ptr<ByteSource> source = place.find(path);
    if (!source) continue;
    const std::string own = read_all(*source, kMostBytes);
    TRIREME_CHECK(owner == nullptr || own == text, named(training.key, *owner), " and ",
                  named(training.key, file),
                  ", whose chat templates differ; prepare both with one tokenizer and template");
    if (owner == nullptr) found = path;
    text = own;
    owner = owner == nullptr ? &file : owner;
  }
  return found;
}

}  // namespace trireme::tasks
