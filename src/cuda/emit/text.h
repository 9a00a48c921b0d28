// Device code being written: lines with their indentation.
#pragma once

#include <string>
#include <string_view>

namespace fuseblock::cuda {

class Text {
 public:
  // A line; an empty one has no indentation.
  void line(std::string_view text = {}) {
    if (!text.empty()) text_.append(static_cast<std::size_t>(depth_) * 2, ' ').append(text);
    text_ += '\n';
  }
  // A line that opens a block, and the one that closes it.
  void open(std::string_view text) {
    line(text);
    ++depth_;
  }
  void close(std::string_view text = "}") {
    --depth_;
    line(text);
  }
  // Ends what a line without a bracket opened.
  void dedent() { --depth_; }
  // Lines that have their own indentation.
  void append(std::string_view lines) { text_ += lines; }

  const std::string& str() const { return text_; }

 private:
  std::string text_;
  int depth_ = 0;
};

}  // namespace fuseblock::cuda
