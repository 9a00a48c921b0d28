// What a block and its builder hold.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "fuseblock/block.h"

namespace fuseblock {

// Where a node stands in the text the block was read from: a stretch of notation, or a pointer into JSON.
struct Origin {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::string pointer;
};

struct Block::Body {
  std::vector<ValueInfo> values;
  std::vector<Node> nodes;
  std::vector<Value> outputs;
  std::unordered_map<std::string, std::int32_t> by_name;
  // By value: whether a stage takes it as running statistics.
  std::vector<bool> buffers;
  // Empty where the block was not read from text; not part of what a block is.
  std::string source;
  std::vector<Origin> origins;
};

struct Builder::State {
  std::vector<ValueInfo> values;
  std::vector<Node> nodes;
  std::unordered_map<std::string, std::int32_t> by_name;
  // For free_name: the next number to try for a name.
  mutable std::unordered_map<std::string, int> next_number;
  std::string source;
  std::vector<Origin> origins;

  // Throws UserError where a name cannot be given to a value, or is taken.
  void check_new_name(const std::string& name) const;
  Value add_value(ValueInfo info);
  // A stage's own parameter, which may have been mentioned before its stage.
  Value parameter(const std::string& name);
  // Throws UserError for a value that is not of this builder.
  ValueInfo& info(Value value);
};

// The operation of a message's stage, or suggestions where there is none: `no operation `rleu`; did you mean
// relu?`.
const Operation& require_operation(std::string_view name);

}  // namespace fuseblock
