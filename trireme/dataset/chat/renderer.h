// Evaluates a template: its expressions (expressions.cc) and its statements (statements.cc).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/dataset/chat/builtins/functions.h"
#include "trireme/dataset/chat/loop.h"
#include "trireme/dataset/chat/scopes.h"
#include "trireme/dataset/chat/syntax/syntax.h"

namespace trireme::dataset::chat {

class Renderer {
 public:
  // `program` and `run` must outlive this.
  Renderer(Run& run, const Program& program, std::optional<std::chrono::local_seconds> now);

  void set(NameId name, Value value) { scopes_.set(name, std::move(value)); }

  // Once. Throws: ConfigError when the template fails, or exceeds a limit
  void render();

  // The result of render().
  std::string take_text() { return std::move(text_); }
  std::vector<std::pair<size_t, size_t>> take_generated() { return std::move(generated_); }

 private:
  friend class Loop;  // which tests its items

  enum class Flow { kNext, kBreak, kContinue };

  // Collects what is printed while it exists.
  class Capture {
   public:
    explicit Capture(Renderer& renderer)
        : renderer_(renderer), outer_(std::exchange(renderer.sink_, &text_)) {}
    ~Capture() { renderer_.sink_ = outer_; }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

    std::string take() { return std::move(text_); }

   private:
    Renderer& renderer_;
    std::string text_;
    std::string* outer_;
  };

  Value evaluate(const Expression& expression);
  Value evaluate_name(const Expression& expression);
  Value evaluate_items(const Expression& expression, Shape shape);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_attribute(const Expression& expression);
  Value evaluate_item(const Expression& expression);
  Value evaluate_slice(const Expression& expression);
  Value evaluate_call(const Expression& expression, const Value* caller = nullptr);
  Value evaluate_filter(const Expression& expression);
  Value evaluate_test(const Expression& expression);
  Value evaluate_arithmetic(const Expression& expression);
  Value evaluate_comparison(const Expression& expression);
  Value evaluate_concatenation(const Expression& expression);
  Value evaluate_conditional(const Expression& expression);
  bool compare(Comparison comparison, const Value& left, const Value& right);
  CallArguments evaluate_arguments(const ArgumentSyntax& syntax);

  Value call(const Value& callee, const CallArguments& arguments);
  Value call_macro(const MacroHandle& handle, const CallArguments& arguments);
  void bind(const Macro& macro, const CallArguments& arguments);
  void bind_special(const Macro& macro, const CallArguments& arguments);
  Value loop_attribute(const LoopHandle& handle, const Value& name);
  Loop& living(const LoopHandle& handle);

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow execute_if(const Statement& statement);
  Flow execute_for(const Statement& statement);
  Flow execute_turns(const Statement& statement, Loop& loop, bool& completes);
  Flow execute_set_block(const Statement& statement);
  Flow execute_filter_block(const Statement& statement);
  void execute_call_block(const Statement& statement);
  void execute_generation(const Statement& statement);
  void assign(const Target& target, const Value& value);
  void print(const Value& value);
  void write(std::string_view text);
  void set_if_named(std::optional<NameId> name, Value value);
  std::optional<NameId> id_of(std::string_view name) const;

  Run& run_;
  const Program& program_;
  Scopes scopes_;
  FunctionContext functions_;
  std::vector<std::optional<Function>> function_of_name_;
  std::optional<NameId> loop_name_, caller_name_, varargs_name_, kwargs_name_;
  std::vector<Loop*> loops_;  // those that run, outermost first
  uint64_t last_loop_serial_ = 0;
  const Value* block_text_ = nullptr;  // the input of a filter block's first filter
  std::string text_;
  std::string* sink_ = &text_;  // where output goes
  std::vector<std::pair<size_t, size_t>> generated_;
};

}  // namespace trireme::dataset::chat
