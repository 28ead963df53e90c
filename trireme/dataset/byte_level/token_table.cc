#include "trireme/dataset/byte_level/token_table.h"

#include <limits>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

constexpr size_t kMaxAddedTokenBytes = 1024;

class TableReader {
 public:
  TableReader(const JsonView& root, const SpellToken& spell) : spell_(spell) {
    const JsonView vocabulary = root.at("model").at("vocab");
    const auto members = vocabulary.members();
    std::vector<JsonView> added;
    const auto found = root.find("added_tokens");
    if (found && !found->value().is_null()) added = found->elements();
    size_t count = members.size();
    for (const JsonView& token : added) {
      count += vocabulary.find(token.at("content").text()) ? 0 : 1;
    }
    if (count == 0 || count > std::numeric_limits<int32_t>::max()) {
      vocabulary.fail("at least 1 token and fewer than 2^31");
    }
    table_.tokens.resize(count);
    taken_.resize(count);
    for (const auto& [name, id] : members) add_token(name, id);
    for (const JsonView& token : added) add_added_token(token);
  }

  TokenTable take() { return std::move(table_); }

 private:
  size_t take_id(const JsonView& view) {
    const auto id = static_cast<size_t>(view.integer(0, std::ssize(taken_) - 1));
    if (taken_[id]) view.fail("a number that no other token has");
    taken_[id] = true;
    return id;
  }

  void add_token(const std::string& name, const JsonView& view) {
    const size_t id = take_id(view);
    table_.vocabulary.emplace(name, static_cast<int32_t>(id));
    table_.tokens[id] = spell_(name, view);
  }

  void add_added_token(const JsonView& view) {
    const JsonView content = view.at("content");
    const JsonView id = view.at("id");
    if (content.text().empty()) content.fail("a text");
    if (content.text().size() > kMaxAddedTokenBytes)
      content.fail(concat("a text of at most ", kMaxAddedTokenBytes, " bytes"));
    const auto number = static_cast<int32_t>(id.integer(0, std::ssize(taken_) - 1));
    if (!added_.insert(content.text()).second) content.fail("a text that no other added token has");
    std::string& token = table_.tokens[static_cast<size_t>(number)];
    const auto known = table_.vocabulary.find(content.text());
    if (known != table_.vocabulary.end()) {
      if (known->second != number) id.fail(concat(known->second, ", as in the vocabulary"));
      if (token != content.text()) content.fail("a text that does not spell other bytes");
    } else {
      take_id(id);
      token = content.text();
    }
    table_.added.push_back(
        {.id = number,
         .content = content.text(),
         .single_word = flag_of(view, "single_word", false),
         .lstrip = flag_of(view, "lstrip", false),
         .rstrip = flag_of(view, "rstrip", false),
         .normalized = flag_of(view, "normalized", !flag_of(view, "special", false))});
  }

  const SpellToken& spell_;
  TokenTable table_;
  std::vector<bool> taken_;  // by number
  std::unordered_set<std::string> added_;
};

}  // namespace

TokenTable read_token_table(const JsonView& root, const SpellToken& spell) {
  return TableReader(root, spell).take();
}

std::vector<AddedToken> tokens_to_find(std::span<const AddedToken> added, bool normalized,
                                       const std::function<std::string(std::string)>& normal) {
  std::vector<AddedToken> tokens;
  std::unordered_set<std::string> contents;
  for (AddedToken token : added) {
    if (token.normalized != normalized) continue;
    if (normalized) token.content = normal(std::move(token.content));
    // Two may have one normal form; the first is found. It may leave nothing of a token.
    if (!token.content.empty() && contents.insert(token.content).second)
      tokens.push_back(std::move(token));
  }
  return tokens;
}

bool flag_of(const JsonView& object, std::string_view key, bool otherwise) {
  const auto found = object.find(key);
  return found ? found->boolean() : otherwise;
}

}  // namespace trireme::dataset
