#include "fuseblock/error.h"

namespace fuseblock {

std::string Error::report() const {
  std::string text = what();
  if (position_.line > 0)
    text += "\n  at line " + std::to_string(position_.line) + ", column " + std::to_string(position_.column);
  if (!position_.pointer.empty()) text += "\n  at " + position_.pointer;
  if (!excerpt_.empty()) text += "\n" + excerpt_;
  return text;
}

}  // namespace fuseblock
