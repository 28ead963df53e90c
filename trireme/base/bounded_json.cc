#include "trireme/base/bounded_json.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme {

// The text is parsed by events and not into a tree that is checked afterwards: a text of brackets
// would end in the stack, and one of many small values would fill the memory, before anything could
// refuse it. Builder counts values and depth while it builds, and stops at the first that is too
// many. It refuses a key that comes twice, of which a parser takes one without a word. Messages do
// not carry the parser's words, only what is wrong and where. A JsonView has the root beside its
// value; the path is searched when there is an error, so reading costs nothing for it.

namespace {

using nlohmann::json;

constexpr size_t kShownBytes = 60;  // of a key or a value in a message

std::string described(const json& value) {
  if (value.is_object()) return concat("an object of ", value.size());
  if (value.is_array()) return concat("an array of ", value.size());
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>(), kShownBytes);
  return value.dump();
}

// ".name", or ."a name" when the key is not a plain word.
std::string step_to(const std::string& key) {
  const bool plain =
      !key.empty() && key.size() <= kShownBytes && std::ranges::all_of(key, [](unsigned char c) {
        return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
               (c >= 'A' && c <= 'Z');
      });
  return "." + (plain ? key : in_quotes(key, kShownBytes));
}

// The path from `value` to `target` inside it, as text. Found by search, because only error
// messages need it. Recurses no deeper than parse_json() allows.
std::optional<std::string> path_to(const json& value, const json* target) {
  if (&value == target) return "";
  if (value.is_object()) {
    for (const auto& [key, member] : value.get_ref<const json::object_t&>()) {
      if (const auto rest = path_to(member, target)) return step_to(key) + *rest;
    }
  } else if (value.is_array()) {
    size_t index = 0;
    for (const json& element : value) {
      if (const auto rest = path_to(element, target)) return concat("[", index, "]", *rest);
      ++index;
    }
  }
  return std::nullopt;
}

// Builds the value from the parser's events and stops when a limit is exceeded.
template <typename Json>
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  // After a text that was refused: why.
  const std::string& problem() const { return problem_; }
  Json take() { return std::move(root_); }

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(typename Json::number_integer_t value) override { return add(Json(value)); }
  bool number_unsigned(typename Json::number_unsigned_t value) override { return add(Json(value)); }
  bool number_float(typename Json::number_float_t value, const std::string&) override {
    return add(Json(value));
  }
  bool string(std::string& value) override { return add(Json(std::move(value))); }
  bool binary(typename Json::binary_t&) override { return fail("has a value that is not JSON"); }

  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    auto& object = open_.back()->template get_ref<typename Json::object_t&>();
    if constexpr (std::is_same_v<Json, nlohmann::ordered_json>) {
      if (object.size() >= limits_.max_ordered_keys) {
        return fail("has an object of more than ", limits_.max_ordered_keys, " keys");
      }
    }
    // A null until the value comes, which is the next event.
    const auto [member, is_new] = object.emplace(name, nullptr);
    if (!is_new) return fail("has the key ", in_quotes(name, kShownBytes), " twice in one object");
    member_ = &member->second;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const std::string_view before = text_.substr(0, std::min(position, text_.size()));
    const size_t line = 1 + static_cast<size_t>(std::ranges::count(before, '\n'));
    const std::string_view what = error.what();
    const char* problem = "is not valid JSON";
    if (what.find("UTF-8") != std::string_view::npos) problem = "is not UTF-8";
    if (error.id == kNumberOverflow) problem = "has a number that is too large";
    return fail(problem, " at line ", line, ", byte ", position);
  }

 private:
  static constexpr int kNumberOverflow = 406;  // nlohmann's code

  // The parser stops at an event that returns false.
  template <typename... Args>
  bool fail(const Args&... args) {
    problem_ = concat("the text ", args...);
    return false;
  }

  // Null when the text has too many values.
  Json* place(Json value) {
    if (++num_values_ > limits_.max_values) {
      fail("has more than ", limits_.max_values, " values");
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_object()) {
      *member_ = std::move(value);
      return member_;
    }
    auto& elements = open_.back()->template get_ref<typename Json::array_t&>();
    elements.push_back(std::move(value));
    return &elements.back();
  }

  bool add(Json value) { return place(std::move(value)) != nullptr; }

  bool open(Json value) {
    if (open_.size() >= limits_.max_depth) {
      return fail("has arrays or objects more than ", limits_.max_depth, " deep");
    }
    Json* const placed = place(std::move(value));
    if (placed != nullptr) open_.push_back(placed);
    return placed != nullptr;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  const JsonLimits& limits_;
  std::string problem_;
  Json root_;
  // The open arrays and objects, outermost first. An array or an ordered object grows only while it
  // is the last of them, so these pointers stay valid.
  std::vector<Json*> open_;
  Json* member_ = nullptr;  // value of the last key, when open_.back() is an object
  size_t num_values_ = 0;
};

}  // namespace

std::string in_quotes(std::string_view text, size_t max_bytes) {
  const std::string shown =
      json(text.substr(0, max_bytes))
          .dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::ignore);
  return text.size() > max_bytes ? shown.substr(0, shown.size() - 1) + "...\"" : shown;
}

namespace {

// The value, or why there is none.
template <typename Json>
std::variant<Json, std::string> parse(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    return concat("the text has ", text.size(), " bytes; expected at most ", limits.max_bytes);
  // The parser would stop at a NUL and ignore the rest.
  if (const size_t zero = text.find('\0'); zero != text.npos)
    return concat("the text is not valid JSON: it has a zero at byte ", zero);
  Builder<Json> builder(text, limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) return builder.problem();
  return builder.take();
}

template <typename Json>
Json parse_or_throw(std::string_view text, const std::string& source, const JsonLimits& limits) {
  auto parsed = parse<Json>(text, limits);
  if (const auto* problem = std::get_if<std::string>(&parsed))
    throw ConfigError(concat(source, ": ", *problem));
  return std::get<Json>(std::move(parsed));
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& source,
                          const JsonLimits& limits) {
  return parse_or_throw<json>(text, source, limits);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& source,
                                          const JsonLimits& limits) {
  return parse_or_throw<nlohmann::ordered_json>(text, source, limits);
}

std::optional<nlohmann::json> try_parse_json(std::string_view text, const JsonLimits& limits) {
  auto parsed = parse<json>(text, limits);
  if (auto* value = std::get_if<json>(&parsed)) return std::move(*value);
  return std::nullopt;
}

JsonView::JsonView(const nlohmann::json& root, const std::string& source)
    : JsonView(&root, &root, &source) {}

JsonView::JsonView(const nlohmann::json* root, const nlohmann::json* value,
                   const std::string* source)
    : root_(root), value_(value), source_(source) {}

void JsonView::fail(std::string_view expected) const {
  std::string path = path_to(*root_, value_).value_or("");
  if (path.starts_with('.')) path.erase(0, 1);
  throw ConfigError(concat(*source_, ": ", path.empty() ? "the text" : path, " is ",
                           described(*value_), "; expected ", expected));
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  if (!value_->is_object()) fail(concat("an object with ", in_quotes(key)));
  const auto& members = value_->get_ref<const json::object_t&>();
  const auto found = members.find(std::string(key));
  if (found == members.end()) return std::nullopt;
  return JsonView(root_, &found->second, source_);
}

JsonView JsonView::at(std::string_view key) const {
  if (const auto found = find(key)) return *found;
  fail(concat("an object with ", in_quotes(key)));
}

std::vector<std::pair<std::string, JsonView>> JsonView::members() const {
  if (!value_->is_object()) fail("an object");
  std::vector<std::pair<std::string, JsonView>> members;
  for (const auto& [key, member] : value_->get_ref<const json::object_t&>()) {
    members.emplace_back(key, JsonView(root_, &member, source_));
  }
  return members;
}

std::vector<JsonView> JsonView::elements() const {
  if (!value_->is_array()) fail("an array");
  std::vector<JsonView> elements;
  elements.reserve(value_->size());
  for (const json& element : *value_) elements.push_back(JsonView(root_, &element, source_));
  return elements;
}

int64_t JsonView::integer(int64_t minimum, int64_t maximum) const {
  // The parser makes numbers above 2^63 unsigned, and above 2^64 floating.
  const bool fits = value_->is_number_integer() &&
                    (!value_->is_number_unsigned() ||
                     value_->get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
  const int64_t number = fits ? value_->get<int64_t>() : 0;
  if (!fits || number < minimum || number > maximum) {
    fail(concat("a whole number from ", minimum, " to ", maximum));
  }
  return number;
}

std::vector<int64_t> JsonView::integers(int64_t minimum, int64_t maximum) const {
  std::vector<int64_t> numbers;
  for (const JsonView& element : elements()) numbers.push_back(element.integer(minimum, maximum));
  return numbers;
}

double JsonView::number(double minimum, double maximum) const {
  const double number = value_->is_number() ? value_->get<double>() : 0;
  if (!value_->is_number() || !(number >= minimum && number <= maximum)) {
    const bool any = minimum == std::numeric_limits<double>::lowest() &&
                     maximum == std::numeric_limits<double>::max();
    fail(any ? "a number" : concat("a number from ", minimum, " to ", maximum));
  }
  return number;
}

bool JsonView::boolean() const {
  if (!value_->is_boolean()) fail("true or false");
  return value_->get<bool>();
}

const std::string& JsonView::text() const {
  if (!value_->is_string()) fail("a string");
  return value_->get_ref<const std::string&>();
}

const std::string& JsonView::word(size_t max_bytes) const {
  const std::string& word = text();
  if (!is_printable(word, max_bytes)) {
    fail(concat("a text of at most ", max_bytes, " bytes without control characters"));
  }
  return word;
}

}  // namespace trireme
