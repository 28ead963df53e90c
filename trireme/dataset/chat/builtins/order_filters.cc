#include <algorithm>
#include <set>

#include "trireme/dataset/chat/builtins/filters.h"
#include "trireme/dataset/chat/values/arithmetic.h"
#include "trireme/dataset/chat/values/letter_case.h"
#include "trireme/dataset/chat/values/subscript.h"
#include "trireme/dataset/chat/values/value_order.h"

namespace trireme::dataset::chat {

namespace {

// What an item is compared by: a text in lower case, unless case counts.
Value comparable(Run& run, Value value, bool case_counts) {
  const Text* text = value.as_text();
  if (!text || case_counts) return value;
  run.charge_characters(text->bytes.size());
  return Value::text(run, lower(text->bytes));
}

struct Keyed {
  Value key;
  Value item;
};

// Equal items keep their order, as in Python.
std::vector<Value> sorted(Run& run, std::vector<Keyed> items, bool descending) {
  std::ranges::stable_sort(items, [&](const Keyed& left, const Keyed& right) {
    const auto less = order(run, left.key, right.key);
    return less && (descending ? *less > 0 : *less < 0);
  });
  std::vector<Value> result;
  for (Keyed& keyed : items) result.push_back(std::move(keyed.item));
  return result;
}

// The least or the greatest, the first of equals.
Value extreme(Run& run, const Value& input, const Parameters& parameters, bool greatest) {
  const bool case_counts = parameters.truth(0, false);
  const Value path = parameters.value_or(1, Value::none());
  std::optional<Keyed> best;
  for (const Value& item : items_of(run, input)) {
    Keyed keyed{comparable(run, item_by_path(run, item, path), case_counts), item};
    const auto less = best ? order(run, keyed.key, best->key) : (greatest ? 1 : -1);
    if (less && (greatest ? *less > 0 : *less < 0)) best = std::move(keyed);
  }
  if (!best) return Value::undefined("uses the least or the greatest of no items");
  return best->item;
}

// The paths of `attribute`, "a,b.c"; none is a path too.
std::vector<Value> paths_of(Run& run, const Value& attribute) {
  const Text* names = attribute.as_text();
  if (!names) return {attribute};
  std::vector<Value> paths;
  for (size_t begin = 0; begin <= names->bytes.size();) {
    run.charge(1);
    const size_t end = std::min(names->bytes.find(',', begin), names->bytes.size());
    paths.push_back(Value::text(run, names->bytes.substr(begin, end - begin)));
    begin = end + 1;
  }
  return paths;
}

}  // namespace

Value filter_dictsort(Run& run, const Value& input, const CallArguments& arguments) {
  const Parameters parameters(run, "the filter dictsort", arguments,
                              {"case_sensitive", "by", "reverse"});
  const Dict* dict = input.as_dict();
  if (!dict) {
    require_defined(run, input);
    run.fail("the filter dictsort is given ", kind_of(input), "; give it a dict");
  }
  const std::string by = parameters.has(1) ? parameters.text(1).bytes : "key";
  if (by != "key" && by != "value") run.fail("the filter dictsort sorts by key or value only");
  std::vector<Keyed> members;
  for (const auto& [key, value] : dict->items()) {
    members.push_back({comparable(run, by == "key" ? key : value, parameters.truth(0, false)),
                       Value::tuple(run, {key, value})});
  }
  return Value::list(run, sorted(run, std::move(members), parameters.truth(2, false)));
}

Value filter_max(Run& run, const Value& input, const CallArguments& arguments) {
  const Parameters parameters(run, "the filter max", arguments, {"case_sensitive", "attribute"});
  return extreme(run, input, parameters, /*greatest=*/true);
}

Value filter_min(Run& run, const Value& input, const CallArguments& arguments) {
  const Parameters parameters(run, "the filter min", arguments, {"case_sensitive", "attribute"});
  return extreme(run, input, parameters, /*greatest=*/false);
}

Value filter_sort(Run& run, const Value& input, const CallArguments& arguments) {
  const Parameters parameters(run, "the filter sort", arguments,
                              {"reverse", "case_sensitive", "attribute"});
  const auto paths = paths_of(run, parameters.value_or(2, Value::none()));
  const bool case_counts = parameters.truth(1, false);
  std::vector<Keyed> items;
  for (const Value& item : items_of(run, input)) {
    std::vector<Value> keys;
    for (const Value& path : paths) {
      keys.push_back(comparable(run, item_by_path(run, item, path), case_counts));
    }
    items.push_back({Value::list(run, std::move(keys)), item});
  }
  return Value::list(run, sorted(run, std::move(items), parameters.truth(0, false)));
}

Value filter_sum(Run& run, const Value& input, const CallArguments& arguments) {
  const Parameters parameters(run, "the filter sum", arguments, {"attribute", "start"});
  const Value path = parameters.value_or(0, Value::none());
  Value sum = parameters.value_or(1, Value::integer(0));
  if (sum.as_text()) run.fail("sums texts; join them");
  for (const Value& item : items_of(run, input)) {
    sum = calculate(run, Arithmetic::kAdd, sum, item_by_path(run, item, path));
  }
  return sum;
}

Value filter_unique(Run& run, const Value& input, const CallArguments& arguments) {
  const Parameters parameters(run, "the filter unique", arguments, {"case_sensitive", "attribute"});
  const Value path = parameters.value_or(1, Value::none());
  std::set<std::string> texts;
  std::vector<Value> others, items;
  for (const Value& item : items_of(run, input)) {
    Value key = comparable(run, item_by_path(run, item, path), parameters.truth(0, false));
    if (key.as_dict() || key.as_sequence(Shape::kList)) {
      run.fail("the filter unique is given ", kind_of(key), " among the items; give it texts");
    }
    if (const Text* text = key.as_text()) {
      if (!texts.insert(text->bytes).second) continue;
    } else if (std::ranges::any_of(others,
                                   [&](const auto& seen) { return equal(run, seen, key); })) {
      continue;
    } else {
      others.push_back(std::move(key));
    }
    items.push_back(item);
  }
  return Value::sequence(run, Shape::kIterator, std::move(items));
}

}  // namespace trireme::dataset::chat
