#include "trireme/tasks/language/foreign_tokenizer.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::tasks::inline internal {
namespace {

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

std::unique_ptr<dataset::Tokenizer> read_foreign_tokenizer(const fs::path& folder,
                                                           int64_t vocab_size,
                                                           std::string& problem) {
  constexpr std::pair<const char*, std::string_view> kFiles[] = {{"tokenizer.model", "bpe"},
                                                                 {"tokenizer.json", "json"}};
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

void require_tokenizer_of(const fs::path& folder, int64_t vocab_size,
                          const dataset::Tokenizer& data) {
  std::string problem;
  const auto theirs = read_foreign_tokenizer(folder, vocab_size, problem);
  if (!theirs) return;
  const std::vector<int32_t> expected = theirs->encode(kSample), found = data.encode(kSample);
  const auto [first, other] = std::ranges::mismatch(expected, found);
  if (first == expected.end() && other == found.end()) return;
  const auto text = [](int32_t token) { return std::to_string(token); };
  const std::string file =
      theirs->kind() == dataset::TokenizerKind::kJson ? "tokenizer.json" : "tokenizer.model";
  throw ConfigError(concat(
      "the data was made with another tokenizer than ", (folder / file).string(), ": token ",
      first - expected.begin(), " of a test text is ", other == found.end() ? "none" : text(*other),
      " in the data and ", first == expected.end() ? "none" : text(*first),
      " there; prepare the data again with that tokenizer, or, if the weights are to learn other "
      "tokens, begin from a folder without it"));
}

}  // namespace trireme::tasks::inline internal
