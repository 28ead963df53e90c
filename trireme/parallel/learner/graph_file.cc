#include "trireme/parallel/learner/graph_file.h"

#include <array>
#include <charconv>
#include <optional>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/parallel/learner/graph_check.h"

namespace trireme::parallel {
namespace {

constexpr std::string_view kSpaces = " \t\r";

// The words of a line without its comment; at most four, as no line has more than three.
std::vector<std::string_view> words_of(std::string_view line) {
  constexpr size_t kMost = 4;
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  while (words.size() < kMost) {
    const size_t start = line.find_first_not_of(kSpaces);
    if (start == std::string_view::npos) break;
    const size_t end = std::min(line.find_first_of(kSpaces, start), line.size());
    words.push_back(line.substr(start, end - start));
    line.remove_prefix(end);
  }
  return words;
}

template <typename Number>
std::optional<Number> number_of(std::string_view word) {
  Number number{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

std::optional<double> weight_of(std::string_view word) {
  const size_t slash = word.find('/');
  if (slash == std::string_view::npos) return number_of<double>(word);
  const auto over = number_of<int>(word.substr(0, slash));
  const auto under = number_of<int>(word.substr(slash + 1));
  if (!over || !under || *under == 0) return std::nullopt;
  return static_cast<double>(*over) / *under;
}

class GraphText {
 public:
  explicit GraphText(const std::string& source) : source_(source) {}

  void take(std::string_view line) {
    ++line_;
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty()) return;
    if (num_learners_ == 0) {
      take_count(words, line);
    } else if (words.size() == 1 && words[0] == "round") {
      rounds_.emplace_back();
      check(rounds_.size() <= size_t{kMostGraphRounds}, line,
            concat("at most ", kMostGraphRounds, " rounds"));
    } else {
      take_edge(words, line);
    }
  }

  LearnerGraph finish() {
    TRIREME_CHECK(num_learners_ > 0, source_, " has no line \"learners N\"; expected it first");
    LearnerGraph graph = make_graph(source_, num_learners_, std::move(rounds_));
    check_connected(graph);
    return graph;
  }

 private:
  void check(bool condition, std::string_view line, const std::string& expected) const {
    TRIREME_CHECK(condition, source_, ", line ", line_, ", is \"", shown(line), "\"; expected ",
                  expected);
  }

  void take_count(const std::vector<std::string_view>& words, std::string_view line) {
    const bool is_count = words.size() == 2 && words[0] == "learners";
    const int count = is_count ? number_of<int>(words[1]).value_or(0) : 0;
    check(count >= 1 && count <= kMostLearners, line,
          concat("\"learners N\" with N from 1 to ", kMostLearners));
    num_learners_ = count;
  }

  void take_edge(const std::vector<std::string_view>& words, std::string_view line) {
    check(!rounds_.empty(), line, "the line \"round\" before a round's edges");
    const bool is_edge = words.size() == 3;
    const auto from = is_edge ? number_of<int>(words[0]) : std::nullopt;
    const auto to = is_edge ? number_of<int>(words[1]) : std::nullopt;
    const auto weight = is_edge ? weight_of(words[2]) : std::nullopt;
    check(from && to && weight, line,
          "\"FROM TO WEIGHT\" with two learners and a number such as 0.25 or 1/3, or \"round\"");
    check(++num_edges_ <= kMostGraphEdges, line, concat("at most ", kMostGraphEdges, " edges"));
    rounds_.back().push_back({*from, *to, *weight});
  }

  const std::string& source_;
  int line_ = 0;
  int num_learners_ = 0;
  int num_edges_ = 0;
  std::vector<GraphRound> rounds_;
};

// The shortest digits that read back as the same number.
std::string digits_of(double weight) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), weight).ptr;
  return {digits.data(), end};
}

}  // namespace

LearnerGraph parse_graph(std::string_view text, const std::string& source) {
  GraphText graph(source);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    graph.take(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return graph.finish();
}

LearnerGraph read_graph(const std::filesystem::path& path) {
  return parse_graph(read_file(path, kMostGraphBytes), shown(path.string(), kMaxWordBytes));
}

std::string to_text(const LearnerGraph& graph) {
  std::string text = concat("# ", graph.name, "\nlearners ", graph.num_learners, "\n");
  for (const GraphRound& round : graph.rounds) {
    text += "round\n";
    for (const GraphEdge& edge : round) {
      text += concat(edge.from, ' ', edge.to, ' ', digits_of(edge.weight), '\n');
    }
  }
  return text;
}

}  // namespace trireme::parallel
