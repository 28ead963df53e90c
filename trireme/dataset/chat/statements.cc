#include <algorithm>

#include "trireme/base/words.h"
#include "trireme/dataset/chat/renderer.h"
#include "trireme/dataset/chat/values/value_order.h"
#include "trireme/dataset/chat/values/value_text.h"

namespace trireme::dataset::chat {

Renderer::Renderer(Run& run, const Program& program, std::optional<std::chrono::local_seconds> now)
    : run_(run), program_(program), scopes_(run, program.names.size()), functions_{.now = now} {
  for (const std::string& name : program.names) function_of_name_.push_back(find_function(name));
  loop_name_ = id_of("loop");
  caller_name_ = id_of("caller");
  varargs_name_ = id_of("varargs");
  kwargs_name_ = id_of("kwargs");
}

std::optional<NameId> Renderer::id_of(std::string_view name) const {
  const auto found = std::ranges::find(program_.names, name);
  if (found == program_.names.end()) return std::nullopt;
  return static_cast<NameId>(found - program_.names.begin());
}

void Renderer::render() { execute(program_.body); }

Renderer::Flow Renderer::execute(const Body& body) {
  const Run::Deeper deeper(run_);
  for (const Statement& statement : body) {
    const Flow flow = execute(statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Renderer::Flow Renderer::execute(const Statement& statement) {
  run_.set_line(statement.line);
  run_.charge(1);
  switch (statement.kind) {
    case StatementKind::kData: write(statement.data); break;
    case StatementKind::kOutput: print(evaluate(*statement.expressions[0])); break;
    case StatementKind::kIf: return execute_if(statement);
    case StatementKind::kFor: return execute_for(statement);
    case StatementKind::kSet: assign(statement.target, evaluate(*statement.expressions[0])); break;
    case StatementKind::kSetBlock: return execute_set_block(statement);
    case StatementKind::kFilterBlock: return execute_filter_block(statement);
    case StatementKind::kMacro: {
      const size_t frame = scopes_.current();
      scopes_.set(
          statement.name,
          Value(Value::Held(MacroHandle{statement.macro.get(), frame, scopes_.serial_of(frame)})));
      break;
    }
    case StatementKind::kCallBlock: execute_call_block(statement); break;
    case StatementKind::kGeneration: execute_generation(statement); break;
    case StatementKind::kBreak: return Flow::kBreak;
    case StatementKind::kContinue: return Flow::kContinue;
  }
  return Flow::kNext;
}

Renderer::Flow Renderer::execute_if(const Statement& statement) {
  const size_t num_conditions = statement.expressions.size();
  for (size_t i = 0; i < num_conditions; ++i) {
    if (is_true(evaluate(*statement.expressions[i]))) return execute(statement.bodies[i]);
  }
  const bool has_else = statement.bodies.size() > num_conditions;
  return has_else ? execute(statement.bodies.back()) : Flow::kNext;
}

Renderer::Flow Renderer::execute_for(const Statement& statement) {
  Loop loop(*this, statement, scopes_.current(), ++last_loop_serial_,
            items_of(run_, evaluate(*statement.expressions[0])));
  // In Jinja, else runs unless a turn came to the end of the body.
  bool completes = false;
  const Flow flow = execute_turns(statement, loop, completes);
  if (flow != Flow::kNext || completes || statement.bodies.size() < 2) return flow;
  const Scopes::Frame frame(scopes_);
  return execute(statement.bodies[1]);
}

Renderer::Flow Renderer::execute_turns(const Statement& statement, Loop& loop, bool& completes) {
  struct Registration {
    std::vector<Loop*>& loops;
    Registration(std::vector<Loop*>& all, Loop* loop) : loops(all) { loops.push_back(loop); }
    ~Registration() { loops.pop_back(); }
  };
  const Registration registration(loops_, &loop);
  Scopes::Frame frame(scopes_);
  while (loop.advance()) {
    frame.clear();
    run_.set_line(statement.line);
    assign(statement.target, loop.current());
    set_if_named(loop_name_, Value(Value::Held(LoopHandle{loops_.size() - 1, loop.serial()})));
    const Flow flow = execute(statement.bodies[0]);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNext) completes = true;
  }
  return Flow::kNext;
}

void Renderer::set_if_named(std::optional<NameId> name, Value value) {
  if (name) scopes_.set(*name, std::move(value));
}

Renderer::Flow Renderer::execute_set_block(const Statement& statement) {
  Value value;
  {
    const Scopes::Frame frame(scopes_);
    Capture capture(*this);
    const Flow flow = execute(statement.bodies[0]);
    if (flow != Flow::kNext) return flow;
    value = Value::text(run_, capture.take());
    if (statement.expressions[0]) {
      const Value* outer = std::exchange(block_text_, &value);
      Value filtered = evaluate(*statement.expressions[0]);
      block_text_ = outer;
      value = std::move(filtered);
    }
  }
  assign(statement.target, value);
  return Flow::kNext;
}

Renderer::Flow Renderer::execute_filter_block(const Statement& statement) {
  const Scopes::Frame frame(scopes_);
  Value input;
  {
    Capture capture(*this);
    const Flow flow = execute(statement.bodies[0]);
    if (flow != Flow::kNext) return flow;
    input = Value::text(run_, capture.take());
  }
  const Value* outer = std::exchange(block_text_, &input);
  const Value filtered = evaluate(*statement.expressions[0]);
  block_text_ = outer;
  print(filtered);
  return Flow::kNext;
}

void Renderer::execute_call_block(const Statement& statement) {
  const size_t frame = scopes_.current();
  const Value caller(
      Value::Held(MacroHandle{statement.macro.get(), frame, scopes_.serial_of(frame)}));
  print(evaluate_call(*statement.expressions[0], &caller));
}

void Renderer::execute_generation(const Statement& statement) {
  if (sink_ != &text_) {
    run_.fail(
        "a generation block is inside of a macro or of another block that takes its text; "
        "put it outside, where its place in the text is known");
  }
  std::string generated;
  {
    const Scopes::Frame frame(scopes_);
    Capture capture(*this);
    execute(statement.bodies[0]);
    generated = capture.take();
  }
  generated_.emplace_back(text_.size(), text_.size() + generated.size());
  write(generated);
}

void Renderer::assign(const Target& target, const Value& value) {
  run_.set_line(target.line);
  if (target.kind == Target::Kind::kName) {
    scopes_.set(target.name, value);
  } else if (target.kind == Target::Kind::kAttribute) {
    const Value* found = scopes_.find(target.name);
    const auto* space = found ? std::get_if<Namespace*>(&found->held()) : nullptr;
    if (!space) {
      run_.fail("sets an attribute of ", shown(program_.names[target.name]),
                ", which is no namespace; make one with namespace()");
    }
    set_attribute(run_, **space, target.attribute, value);
  } else {
    if (value.is_undefined()) require_defined(run_, value);
    const auto items = items_of(run_, value);
    if (items.size() != target.parts.size()) {
      run_.fail("unpacks ", items.size(), " values into ", target.parts.size(), " variables");
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
  }
}

void Renderer::print(const Value& value) {
  if (const Text* text = value.as_text()) {
    write(text->bytes);
  } else {
    write(text_of(run_, value));
  }
}

void Renderer::write(std::string_view text) {
  const auto& limits = run_.limits();
  const size_t limit = sink_ == &text_ ? limits.max_output_bytes : limits.max_text_bytes;
  if (text.size() > limit - sink_->size()) {
    run_.fail("prints more than ", limit, " bytes; render fewer messages at a time");
  }
  run_.charge_bytes(text.size());
  *sink_ += text;
}

}  // namespace trireme::dataset::chat
