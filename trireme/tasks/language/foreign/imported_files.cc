#include "trireme/tasks/language/foreign/imported_files.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "hugging_face.";
constexpr const char* kConfig = "config.json";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kChatTemplate = "chat_template.jinja";
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer.model", "spiece.model"};
constexpr const char* kOtherFiles[] = {kGeneration,
                                       kChatTemplate,
                                       "chat_template.json",
                                       "tokenizer_config.json",
                                       "preprocessor_config.json",
                                       "processor_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt"};
constexpr uint64_t kMaxBytes = uint64_t{256} << 20;

// All names but config.json.
std::vector<std::string> file_names() {
  std::vector<std::string> names(std::begin(kTokenizerFiles), std::end(kTokenizerFiles));
  names.insert(names.end(), std::begin(kOtherFiles), std::end(kOtherFiles));
  return names;
}

void copy_if_there(const fs::path& from, const fs::path& to) {
  if (is_file(from)) write_file_atomically(to, read_file(from, kMaxBytes));
}

// The folder of a checkpoint's run. The path may be relative or end in a slash.
fs::path run_of(const fs::path& checkpoint) {
  std::error_code missing;
  return fs::weakly_canonical(checkpoint / ".", missing).parent_path().parent_path();
}

namespace fs = std::filesystem;

constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;

// Words, numbers, code and white space that tokenizers cut in different ways.
constexpr std::string_view kSample =
    "The quick brown fox can't jump 12345.678 times, over  the\n\n\tlazy dog's   back!\r\n"
    "if (x_1 != y[2]) { return f(x) -> 0xff; }  // https://example.org/a?b=c\n"
    "Gr\u00fc\u00dfe, na\u00efve fa\u00e7ade; \u041f\u0440\u0438\u0432\u0435\u0442, "
    "\u03b1\u03b2\u03b3; \u4f60\u597d\uff0c\u4e16\u754c\u3002 \u3053\u3093; "
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947 "
    "\U0001f642\U0001f469\u200d\U0001f4bb";

}  // namespace

std::vector<std::string> imported_file_names() {
  std::vector<std::string> names = file_names();
  names.emplace_back(kConfig);
  for (std::string& name : names) name.insert(0, kPrefix);
  return names;
}

void keep_imported_files(const fs::path& source, const fs::path& config, const fs::path& run) {
  if (!config.empty()) copy_if_there(config, run / concat(kPrefix, kConfig));
  for (const std::string& name : file_names())
    copy_if_there(source / name, run / concat(kPrefix, name));
}

void take_imported_files(const fs::path& weights, const fs::path& run) {
  if (is_file(weights / kConfig)) return keep_imported_files(weights, weights / kConfig, run);
  for (const std::string& name : imported_file_names())
    copy_if_there(run_of(weights) / name, run / name);
}

void keep_chat_template(const std::string& chat_template, const FilePlace& place,
                        const fs::path& run) {
  const bool is_imported = std::ranges::any_of(
      imported_file_names(), [&](const std::string& name) { return is_file(run / name); });
  if (is_imported || chat_template.empty()) return;
  if (const std::unique_ptr<ByteSource> file = place.find(chat_template))
    write_file_atomically(run / concat(kPrefix, kChatTemplate), read_all(*file, kMaxBytes));
}

ImportedFiles::ImportedFiles(const fs::path& checkpoint) : run_(run_of(checkpoint)) {}

fs::path ImportedFiles::path_of(const std::string& name) const {
  return run_ / concat(kPrefix, name);
}

bool ImportedFiles::has(const std::string& name) const { return is_file(path_of(name)); }

std::string ImportedFiles::config() const {
  return has(kConfig) ? read_file(path_of(kConfig), kMaxBytes) : "";
}

bool ImportedFiles::has_tokenizer() const {
  return std::ranges::any_of(kTokenizerFiles, [&](const char* name) { return has(name); });
}

bool ImportedFiles::belong_to(const dataset::Tokenizer* tokenizer) const {
  if (tokenizer == nullptr || !has_tokenizer()) return true;
  const std::string own = tokenizer->serialize();
  return std::ranges::any_of(kTokenizerFiles, [&](const char* name) {
    return has(name) && read_file(path_of(name), kMaxBytes) == own;
  });
}

std::vector<int64_t> ImportedFiles::end_tokens(int64_t vocab_size) const {
  for (const char* name : {kGeneration, kConfig}) {
    if (!has(name)) continue;
    const std::string source = path_of(name).string();
    const nlohmann::json value = parse_json(read_file(path_of(name), kMaxBytes), source);
    const auto found = JsonView(value, source).find("eos_token_id");
    if (!found || found->value().is_null()) continue;
    std::vector<int64_t> tokens =
        found->value().is_array() ? found->integers(0) : std::vector{found->integer(0)};
    std::erase_if(tokens, [&](int64_t token) { return token >= vocab_size; });
    return tokens;
  }
  return {};
}

std::vector<std::string> ImportedFiles::write_to(const fs::path& folder) const {
  std::vector<std::string> written;
  for (const std::string& name : file_names()) {
    if (!has(name)) continue;
    copy_if_there(path_of(name), folder / name);
    written.push_back(name);
  }
  return written;
}

std::unique_ptr<dataset::Tokenizer> read_foreign_tokenizer(const fs::path& folder,
                                                           int64_t vocab_size,
                                                           std::string& problem) {
  // A folder of T5's may have the last two, of which one is read.
  constexpr std::pair<const char*, std::string_view> kFiles[] = {
      {"tokenizer.model", "bpe"}, {"tokenizer.json", "json"}, {"spiece.model", "bpe"}};
  for (const auto& [name, kind_name] : kFiles) {
    const fs::path path = folder / name;
    const auto* const kind = find_choice(dataset::kTokenizerKinds, kind_name);
    if (kind == nullptr || !is_file(path)) continue;
    try {
      auto tokenizer = dataset::make_tokenizer(kind->value, read_file(path, kMaxTokenizerBytes));
      TRIREME_CHECK(tokenizer->vocab_size() <= vocab_size, "it has ", tokenizer->vocab_size(),
                    " tokens and the model ", vocab_size);
      problem.clear();
      return tokenizer;
    } catch (const Error& error) {
      problem += concat(problem.empty() ? "" : "; ", path.string(), ": ", error.what());
    }
  }
  return nullptr;
}

std::string differing_token(const dataset::Tokenizer& theirs, const dataset::Tokenizer& data) {
  const std::vector<int32_t> expected = theirs.encode(kSample), found = data.encode(kSample);
  const auto [first, other] = std::ranges::mismatch(expected, found);
  if (first == expected.end() && other == found.end()) return "";
  const auto text = [](int32_t token) { return std::to_string(token); };
  return concat("token ", first - expected.begin(), " of a test text is ",
                other == found.end() ? "none" : text(*other), " in the data and ",
                first == expected.end() ? "none" : text(*first), " there");
}

void require_tokenizer_of(const fs::path& folder, int64_t vocab_size,
                          const dataset::Tokenizer& data) {
  std::string problem;
  const auto theirs = read_foreign_tokenizer(folder, vocab_size, problem);
  if (!theirs) return;
  const std::string difference = differing_token(*theirs, data);
  if (difference.empty()) return;
  const bool is_json = theirs->kind() == dataset::TokenizerKind::kJson;
  const char* const of_sentencepiece =
      is_file(folder / "tokenizer.model") ? "tokenizer.model" : "spiece.model";
  const std::string file = is_json ? "tokenizer.json" : of_sentencepiece;
  throw ConfigError(concat(
      "the data was made with another tokenizer than ", (folder / file).string(), ": ", difference,
      "; prepare the data again with that tokenizer, or, if the weights are to learn other "
      "tokens, begin from a folder without it"));
}

}  // namespace trireme::tasks
