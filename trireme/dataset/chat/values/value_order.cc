#include "trireme/dataset/chat/values/value_order.h"

#include <algorithm>

#include "trireme/dataset/chat/values/characters.h"
#include "trireme/dataset/chat/values/text_search.h"

namespace trireme::dataset::chat {

namespace {

bool equal_sequences(Run& run, const Sequence& left, const Sequence& right) {
  const bool comparable =
      left.shape == right.shape &&
      (left.shape == Shape::kList || left.shape == Shape::kTuple || left.shape == Shape::kRange);
  if (!comparable || left.items.size() != right.items.size()) return &left == &right;
  for (size_t i = 0; i < left.items.size(); ++i) {
    if (!equal(run, left.items[i], right.items[i])) return false;
  }
  return true;
}

bool equal_dicts(Run& run, const Dict& left, const Dict& right) {
  if (left.items().size() != right.items().size()) return false;
  return std::ranges::all_of(left.items(), [&](const auto& member) {
    const Value* other = right.find(run, member.first);
    return other && equal(run, member.second, *other);
  });
}

// Functions, namespaces and loops are equal to themselves.
bool same_object(const Value& left, const Value& right) {
  if (left.held().index() != right.held().index()) return false;
  if (const Method* a = left.as_method(), *b = right.as_method(); a && b) {
    return a->name == b->name && same_object(a->receiver, b->receiver);
  }
  return std::visit(
      [&]<typename Type>(const Type& held) { return held == std::get<Type>(right.held()); },
      left.held());
}

template <typename Number>
std::optional<int> order_of(Number left, Number right) {
  if (left < right) return -1;
  if (left > right) return 1;
  if (left == right) return 0;
  return std::nullopt;
}

// Of two numbers; an integer beyond 2^53 is compared with a floating-point number as such.
std::optional<int> order_of_numbers(const Value& left, const Value& right) {
  int64_t left_integer = 0, right_integer = 0;
  if (left.get_integer(left_integer) && right.get_integer(right_integer)) {
    return order_of(left_integer, right_integer);
  }
  double left_number = 0, right_number = 0;
  left.get_number(left_number);
  right.get_number(right_number);
  return order_of(left_number, right_number);
}

bool is_number(const Value& value) {
  double number = 0;
  return value.get_number(number);
}

std::vector<Value> rest_of(Run& run, const Sequence& sequence) {
  run.charge(sequence.items.size());
  if (sequence.shape != Shape::kIterator) return sequence.items;
  const auto begin = sequence.items.begin() + static_cast<std::ptrdiff_t>(sequence.next);
  sequence.next = sequence.items.size();
  return {begin, sequence.items.end()};
}

}  // namespace

bool is_true(const Value& value) {
  double number = 0;
  if (value.is_undefined() || value.is_none()) return false;
  if (value.get_number(number)) return number != 0;
  const auto* sequence = value.as_sequence();
  if (sequence && sequence->shape == Shape::kIterator) return true;
  const auto length = length_of(value);
  return !length || *length != 0;
}

std::optional<size_t> length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const Text* text = value.as_text()) return text->length;
  if (const Dict* dict = value.as_dict()) return dict->items().size();
  if (const Sequence* sequence = value.as_sequence();
      sequence && sequence->shape != Shape::kIterator) {
    return sequence->items.size();
  }
  return std::nullopt;
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.as_text() || value.as_dict() || value.as_sequence();
}

std::vector<Value> items_of(Run& run, const Value& value) {
  std::vector<Value> items;
  if (const Sequence* sequence = value.as_sequence()) return rest_of(run, *sequence);
  if (const Dict* dict = value.as_dict()) {
    run.charge(dict->items().size());
    for (const auto& member : dict->items()) items.push_back(member.first);
  } else if (const Text* text = value.as_text()) {
    for (size_t offset = 0; offset < text->bytes.size();) {
      const size_t begin = offset;
      next_character(text->bytes, offset);
      run.charge(1);
      items.push_back(Value::text(run, text->bytes.substr(begin, offset - begin)));
    }
  } else if (!value.is_undefined()) {
    run.fail("goes through the items of ", kind_of(value), ", which has none");
  }
  return items;
}

bool equal(Run& run, const Value& left, const Value& right) {
  run.charge(1);
  if (is_number(left) && is_number(right)) return order_of_numbers(left, right) == 0;
  if (const Text* a = left.as_text(), *b = right.as_text(); a && b) {
    run.charge_bytes(std::min(a->bytes.size(), b->bytes.size()));
    return a->bytes == b->bytes;
  }
  if (const Sequence* a = left.as_sequence(), *b = right.as_sequence(); a && b) {
    return a == b || equal_sequences(run, *a, *b);
  }
  if (const Dict* a = left.as_dict(), *b = right.as_dict(); a && b) {
    return a == b || equal_dicts(run, *a, *b);
  }
  return same_object(left, right);
}

std::optional<int> order(Run& run, const Value& left, const Value& right) {
  run.charge(1);
  require_defined(run, left);
  require_defined(run, right);
  if (is_number(left) && is_number(right)) return order_of_numbers(left, right);
  if (const Text* a = left.as_text(), *b = right.as_text(); a && b) {
    run.charge_bytes(std::min(a->bytes.size(), b->bytes.size()));
    // The order of bytes in UTF-8 is that of characters.
    return a->bytes.compare(b->bytes);
  }
  const Sequence *a = left.as_sequence(), *b = right.as_sequence();
  const bool ordered =
      a && b && a->shape == b->shape && (a->shape == Shape::kList || a->shape == Shape::kTuple);
  if (!ordered)
    run.fail("compares ", kind_of(left), " with ", kind_of(right), ", which have no order");
  const size_t common = std::min(a->items.size(), b->items.size());
  for (size_t i = 0; i < common; ++i) {
    if (!equal(run, a->items[i], b->items[i])) return order(run, a->items[i], b->items[i]);
  }
  return order_of(a->items.size(), b->items.size());
}

bool contains(Run& run, const Value& container, const Value& item) {
  if (const Text* text = container.as_text()) {
    const Text* part = item.as_text();
    if (!part) {
      require_defined(run, item);
      run.fail("searches a text for ", kind_of(item), "; search it for a text");
    }
    run.charge_bytes(text->bytes.size() + part->bytes.size());
    return has_part(text->bytes, part->bytes);
  }
  if (const Dict* dict = container.as_dict()) return dict->find(run, item) != nullptr;
  if (const Sequence* sequence = container.as_sequence()) {
    const bool once = sequence->shape == Shape::kIterator;
    for (size_t i = once ? sequence->next : 0; i < sequence->items.size(); ++i) {
      if (once) sequence->next = i + 1;
      if (equal(run, sequence->items[i], item)) return true;
    }
    return false;
  }
  if (!container.is_undefined()) {
    run.fail("searches ", kind_of(container), " with `in`; search a list, a dict or a text");
  }
  return false;
}

void require_defined(const Run& run, const Value& value) {
  const auto* undefined = std::get_if<Undefined>(&value.held());
  if (!undefined) return;
  if (undefined->reason) run.fail(*undefined->reason);
  run.fail("uses an undefined value");
}

}  // namespace trireme::dataset::chat
