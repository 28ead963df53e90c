#include "trireme/dataset/byte_level/byte_level_bpe.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <utf8proc.h>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/dataset/byte_level/token_table.h"

namespace trireme::dataset {
namespace {

constexpr size_t kMaxCachedBytes = 128;  // of a part
constexpr size_t kMaxCachedParts = size_t{1} << 17;
constexpr size_t kMaxTextBytes = std::numeric_limits<int32_t>::max();

// Length of the longest prefix that is well-formed UTF-8.
size_t well_formed_prefix(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    const size_t length = utf8_character_bytes(text.substr(end));
    if (length == 0) break;
    end += length;
  }
  return end;
}

// All but the hidden one.
std::vector<AddedToken> chosen(const TokenizerFile& file, int32_t hidden, bool normalized) {
  std::vector<AddedToken> added = file.added;
  std::erase_if(added, [&](const AddedToken& token) { return token.id == hidden; });
  return tokens_to_find(added, normalized, [&](std::string content) {
    std::string memory;
    return file.composes ? std::string(composed(content, memory)) : content;
  });
}

}  // namespace

// Parts of text recur, so their tokens are kept from call to call.
struct ByteLevelBpe::Memory {
  struct Cached {
    size_t begin;  // in cached_tokens
    size_t count;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  std::vector<int32_t> tokens;  // the result
  MatchMemory match;
  MergeMemory merge;
  std::unordered_map<std::string, Cached, Hash, std::equal_to<>> cache;
  std::vector<int32_t> cached_tokens;

  // Where the tokens of a normalised text end in it, if somebody asks.
  bool notes_ends = false;
  std::vector<int64_t> ends;
  int64_t at = 0;        // how far the text is encoded
  int64_t earliest = 0;  // end of the next token

  void note(size_t num_bytes) {
    at += static_cast<int64_t>(num_bytes);
    if (notes_ends) ends.push_back(std::max(at, earliest));
  }
};

// A Memory of this call, kept for the next when the call ends.
class ByteLevelBpe::Lease {
 public:
  explicit Lease(const ByteLevelBpe& owner) : owner_(owner) {
    const std::lock_guard lock(owner_.mutex_);
    if (owner_.idle_.empty()) {
      memory_ = std::make_unique<Memory>();
    } else {
      memory_ = std::move(owner_.idle_.back());
      owner_.idle_.pop_back();
    }
  }
  ~Lease() {
    memory_->tokens = {};
    memory_->notes_ends = false;
    const std::lock_guard lock(owner_.mutex_);
    owner_.idle_.push_back(std::move(memory_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  Memory& memory() { return *memory_; }

 private:
  const ByteLevelBpe& owner_;
  std::unique_ptr<Memory> memory_;
};

ByteLevelBpe::ByteLevelBpe(TokenizerFile file, int32_t end_of_document, const std::string& source,
                           UsualEnd usual_end)
    : bytes_(file.bytes),
      merges_(file.merges),
      composes_(file.composes),
      end_of_document_(end_of_document),
      hidden_(usual_end == UsualEnd::kIsText && is_usual_end_of_document(file, end_of_document)
                  ? end_of_document
                  : -1),
      added_(chosen(file, hidden_, false)),
      added_normalised_(chosen(file, hidden_, true)) {
  const bool is_byte = std::ranges::find(bytes_, end_of_document) != bytes_.end();
  const bool is_merged =
      std::ranges::find(file.merges, end_of_document, &Merge::result) != file.merges.end();
  TRIREME_CHECK(!is_byte && !is_merged, source, ": text can encode to token ", end_of_document,
                ", which is to end documents; choose another added token with --end-of-document");
  for (const SplitStep& step : file.steps) {
    steps_.push_back(
        {.adds_space = step.adds_space,
         .regex = step.pattern.empty() ? nullptr : std::make_unique<Regex>(step.pattern, source)});
  }
  tokens_ = std::move(file.tokens);
  if (!file.ignores_merges) return;
  whole_.reserve(file.vocabulary.size());
  for (const int32_t token : file.vocabulary) {
    if (token != hidden_) whole_.emplace(tokens_[static_cast<size_t>(token)], token);
  }
}

ByteLevelBpe::~ByteLevelBpe() = default;

std::vector<int32_t> ByteLevelBpe::encode(std::string_view text) const {
  TRIREME_CHECK(text.size() <= kMaxTextBytes, "a text of ", text.size(),
                " bytes is too large to encode at once; expected at most ", kMaxTextBytes);
  Lease lease(*this);
  Memory& memory = lease.memory();
  memory.match.begin_text(text.size());
  memory.tokens.reserve(text.size() / 3 + 1);
  while (!text.empty()) {
    const size_t length = well_formed_prefix(text);
    encode_well_formed(text.substr(0, length), memory);
    text.remove_prefix(length);
    if (text.empty()) break;
    memory.tokens.push_back(bytes_[static_cast<unsigned char>(text[0])]);
    text.remove_prefix(1);
  }
  return std::move(memory.tokens);
}

void ByteLevelBpe::encode_well_formed(std::string_view text, Memory& memory) const {
  std::string normalised;
  added_.split(
      text, memory.match,
      [&](std::string_view part) {
        encode_normalised(composes_ ? composed(part, normalised) : part, memory);
      },
      [&](int32_t token, std::string_view) { memory.tokens.push_back(token); });
}

std::vector<int32_t> ByteLevelBpe::encode(std::string_view text, std::span<const size_t> characters,
                                          std::vector<size_t>& holders) const {
  TRIREME_CHECK(text.size() <= kMaxTextBytes, "a text of ", text.size(),
                " bytes is too large to encode at once; expected at most ", kMaxTextBytes);
  TRIREME_ASSERT(is_utf8(text), "characters of a text that is not UTF-8");
  Lease lease(*this);
  Memory& memory = lease.memory();
  memory.match.begin_text(text.size());
  memory.notes_ends = true;
  holders.clear();
  std::string normalised, before;
  const auto has_more = [&](std::string_view part) {
    return holders.size() < characters.size() &&
           characters[holders.size()] < static_cast<size_t>(part.end() - text.begin());
  };
  added_.split(
      text, memory.match,
      [&](std::string_view part) {
        const auto begin = static_cast<size_t>(part.begin() - text.begin());
        const size_t first = memory.tokens.size();
        memory.ends.clear();
        memory.at = memory.earliest = 0;
        const std::string_view whole = composes_ ? composed(part, normalised) : part;
        encode_normalised(whole, memory);
        const bool is_changed = whole.data() != part.data();
        const auto size_of = [&](std::string_view raw) {
          return is_changed ? composed(raw, before).size() : raw.size();
        };
        size_t raw = 0, at = 0;  // how far the characters are counted, in `part` and in `whole`
        while (has_more(part)) {
          const size_t next = characters[holders.size()] - begin;
          at += size_of(part.substr(raw, next - raw));
          raw = next;
          const auto end = std::ranges::upper_bound(memory.ends, static_cast<int64_t>(at));
          holders.push_back(first + static_cast<size_t>(end - memory.ends.begin()));
        }
        TRIREME_CHECK(!is_changed || at + size_of(part.substr(raw)) == whole.size(),
                      "a character is composed with one before it, and only one of them is in a "
                      "part of the text that counts; write the composed character");
      },
      [&](int32_t token, std::string_view part) {
        while (has_more(part)) holders.push_back(memory.tokens.size());
        memory.tokens.push_back(token);
      });
  return std::move(memory.tokens);
}

void ByteLevelBpe::encode_normalised(std::string_view text, Memory& memory) const {
  added_normalised_.split(
      text, memory.match, [&](std::string_view part) { cut(part, 0, memory); },
      [&](int32_t token, std::string_view part) {
        memory.tokens.push_back(token);
        memory.note(part.size());
      });
}

void ByteLevelBpe::cut(std::string_view text, size_t step, Memory& memory) const {
  if (text.empty()) return;
  if (step == steps_.size()) return encode_part(text, memory);
  const auto& [adds_space, regex] = steps_[step];
  std::string with_space;
  if (adds_space && text.front() != ' ') {
    with_space = concat(' ', text);
    text = with_space;
    // Its token counts as one of the first character.
    memory.earliest = memory.at + 1;
    --memory.at;
  }
  size_t done = 0;
  while (regex != nullptr && done < text.size()) {
    const auto match = regex->find(text, done, memory.match);
    if (!match) break;
    cut(text.substr(done, match->begin - done), step + 1, memory);
    cut(text.substr(match->begin, match->end - match->begin), step + 1, memory);
    done = match->end;
  }
  cut(text.substr(done), step + 1, memory);
}

void ByteLevelBpe::encode_part(std::string_view part, Memory& memory) const {
  if (const auto found = memory.cache.find(part); found != memory.cache.end()) {
    const auto begin =
        memory.cached_tokens.begin() + static_cast<std::ptrdiff_t>(found->second.begin);
    append({begin, found->second.count}, memory);
    return;
  }
  const std::vector<int32_t> tokens = tokens_of(part, memory);
  append(tokens, memory);
  if (part.size() > kMaxCachedBytes) return;
  if (memory.cache.size() == kMaxCachedParts) {
    memory.cache.clear();
    memory.cached_tokens.clear();
  }
  memory.cache.emplace(part, Memory::Cached{memory.cached_tokens.size(), tokens.size()});
  memory.cached_tokens.insert(memory.cached_tokens.end(), tokens.begin(), tokens.end());
}

void ByteLevelBpe::append(std::span<const int32_t> tokens, Memory& memory) const {
  memory.tokens.insert(memory.tokens.end(), tokens.begin(), tokens.end());
  if (!memory.notes_ends) return;
  for (const int32_t token : tokens) memory.note(tokens_[static_cast<size_t>(token)].size());
}

std::vector<int32_t> ByteLevelBpe::tokens_of(std::string_view part, Memory& memory) const {
  if (const auto found = whole_.find(part); found != whole_.end()) return {found->second};
  std::vector<int32_t> tokens;
  tokens.reserve(part.size());
  for (const char c : part) tokens.push_back(bytes_[static_cast<unsigned char>(c)]);
  merges_.apply(tokens, memory.merge);
  return tokens;
}

std::string ByteLevelBpe::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    TRIREME_CHECK(token >= 0 && token < vocab_size(), "token ", token,
                  " is outside the vocabulary of ", vocab_size(), " (tokenizer json)");
    if (token != hidden_) text += tokens_[static_cast<size_t>(token)];
  }
  return text;
}

namespace {

// Characters below U+0300 are in normal form and combine with none before them. The first byte of
// all others is at least that of U+0300.
constexpr unsigned char kFirstByte = 0xCC;

bool may_change(char c) { return static_cast<unsigned char>(c) >= kFirstByte; }
bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

int combining_class(utf8proc_int32_t character) {
  return utf8proc_get_property(character)->combining_class;
}

std::vector<utf8proc_int32_t> decomposed(std::string_view text) {
  std::vector<utf8proc_int32_t> characters;
  const auto* const bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t character = 0;
    const auto length =
        utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &character);
    TRIREME_ASSERT(length > 0, "text that is not UTF-8");
    at += static_cast<size_t>(length);
    std::array<utf8proc_int32_t, 32> parts;
    const auto count = utf8proc_decompose_char(
        character, parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE), nullptr);
    TRIREME_ASSERT(count > 0 && count <= std::ssize(parts), "a character of ", count, " parts");
    characters.insert(characters.end(), parts.begin(), parts.begin() + count);
  }
  return characters;
}

// Marks follow their letter in the order of their classes. utf8proc's sort takes quadratic time.
void sort_marks(std::vector<utf8proc_int32_t>& characters) {
  const auto is_letter = [](utf8proc_int32_t c) { return combining_class(c) == 0; };
  for (auto at = characters.begin(); at != characters.end();) {
    const auto begin = std::find_if_not(at, characters.end(), is_letter);
    at = std::find_if(begin, characters.end(), is_letter);
    std::stable_sort(begin, at, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
  }
}

void append_composed(std::string_view text, std::string& result) {
  std::vector<utf8proc_int32_t> characters = decomposed(text);
  sort_marks(characters);
  const auto count =
      utf8proc_normalize_utf32(characters.data(), std::ssize(characters),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  TRIREME_ASSERT(count >= 0 && count <= std::ssize(characters), "utf8proc's error ", count);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    std::array<utf8proc_uint8_t, 4> bytes;
    const auto length = utf8proc_encode_char(characters[static_cast<size_t>(i)], bytes.data());
    result.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(length));
  }
}

}  // namespace

std::string_view composed(std::string_view text, std::string& memory) {
  auto run = std::find_if(text.begin(), text.end(), may_change);
  if (run == text.end()) return text;
  memory.clear();
  auto done = text.begin();
  while (run != text.end()) {
    const auto end =
        std::find_if(run, text.end(), [](char c) { return !may_change(c) && !is_continuation(c); });
    // The character before them may take their first marks.
    auto begin = run;
    while (begin != done && is_continuation(*--begin)) {
    }
    memory.append(done, begin);
    append_composed(std::string_view(begin, end), memory);
    done = end;
    run = std::find_if(end, text.end(), may_change);
  }
  memory.append(done, text.end());
  return memory;
}

}  // namespace trireme::dataset
