#include "cuda/emit/columns_sums.h"

#include <algorithm>

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }

}  // namespace

ColumnsSumsWriter::ColumnsSumsWriter(const Schedule& schedule, const KernelCut& cut,
                                     const ColumnsConstants& constants)
    : ColumnsAccessWriter(schedule, cut, constants) {
  for (int i = 0; i < sweep_count(); ++i)
    for (const Sink& sink : sweep(i).sinks)
      if (is_gathered(sink)) sums_.push_back({i, sink.step, sink.part, {}});
  find_sums();
}

// A component is its statistic, of those that have one.
int ColumnsSumsWriter::owner(int number) const {
  return part(number).kind == PartKind::kComponent ? part(number).operands[0] : number;
}

void ColumnsSumsWriter::find_sums() {
  // A sum over samples of sums for each sample is taken as one.
  auto is_over_samples = [&](int number, int sum) {
    const Part& which = part(number);
    return which.kind == PartKind::kMerge && which.axes == AxisSet{Axis::kN} &&
           owner(which.operands[0]) == sum;
  };
  for (Gathered& sum : sums_) {
    bool else_needed = cut_.later[at(sum.part)];
    for (int number : cut_.remaining) {
      if (part(number).kind == PartKind::kComponent) continue;
      if (is_over_samples(number, sum.part))
        sum.totals.push_back(number);
      else
        for (int operand : part(number).operands) else_needed = else_needed || owner(operand) == sum.part;
    }
    for (int output : statistic_outputs({}, false))
      else_needed = else_needed || owner(slot(output).part) == sum.part;
    if (!else_needed) continue;
    if (domain_[0] == 1)
      sum.totals.push_back(sum.part);
    else
      by_sample_ = true;
  }
  if (by_sample_)
    for (Gathered& sum : sums_) sum.totals = {sum.part};
  auto is_total = [&](int number) {
    return std::any_of(sums_.begin(), sums_.end(),
                       [&](const Gathered& sum) { return contains(sum.totals, owner(number)); });
  };
  for (int number : cut_.remaining)
    if (part(number).kind != PartKind::kComponent && !is_total(number)) rest_.push_back(number);
  for (int output : statistic_outputs({}, false))
    if (!is_total(slot(output).part)) rest_outputs_.push_back(output);
}

bool ColumnsSumsWriter::is_needed(int number) const {
  return cut_.later[at(number)] || std::any_of(rest_.begin(), rest_.end(), [&](int other) {
           const std::vector<int>& operands = part(other).operands;
           return std::any_of(operands.begin(), operands.end(),
                              [&](int operand) { return owner(operand) == number; });
         });
}

bool ColumnsSumsWriter::sums_end_in_16_bits() const {
  const std::vector<int> outputs = statistic_outputs({}, false);
  return std::all_of(outputs.begin(), outputs.end(),
                     [&](int output) { return byte_size(element_type(output)) == 2; });
}

void ColumnsSumsWriter::write_gathered(Text& text, int which) {
  int first = 0;
  std::vector<const Gathered*> own;
  for (const Gathered& sum : sums_) {
    if (sum.sweep < which) ++first;
    if (sum.sweep == which) own.push_back(&sum);
  }
  text.line("static constexpr int kFirstSum = " + number_text(first) +
            ", kSums = " + std::to_string(own.size()) + ";");
  if (own.empty()) return;
  text.open("static __device__ void add_sums(const Results& results, real (&sums)[kSums]) {");
  for (std::size_t i = 0; i < own.size(); ++i)
    text.line("sums[" + std::to_string(i) + "] += results.r" + number_text(own[i]->step) + ";");
  text.close();
  text.line("static __device__ void gather(const Sites& sites, int step,");
  text.open(
      "                              const Results (&results)[kPositions][kElements], Gathered& gathered,");
  text.line("                              char* memory) {");
  text.line("gather_step<Sweep" + number_text(which) +
            ">(sites, step, results, gathered, sums_column(memory));");
  text.close();
}

void ColumnsSumsWriter::write_totals(Text& text) {
  if (sums_.empty()) return;
  text.line("// A sum over a span of tiles, which is all of them or a sample.");
  text.open(
      "__device__ inline void put_total(const Arguments& a, Count span, int channel, int number, double "
      "total) "
      "{");
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    text.open("if (number == " + std::to_string(i) + ") {");
    for (int number : sums_[i].totals) {
      if (is_needed(number)) {
        const std::string to = tensor(schedule_.statistic_slot(number, 0));
        text.line(to + ".data[" + to + ".offset(span, channel)] = total;");
      }
      for (int output : statistic_outputs({}, false)) {
        if (owner(slot(output).part) != number) continue;
        const std::string to = tensor(output);
        text.line("assign(" + to + ".data[" + to + ".offset(span, channel)], total);");
      }
    }
    text.close();
  }
  text.close();
  if (has_tail())
    write_finalise_all(text, rest_, rest_outputs_);
  else
    text.line("__device__ inline void finalise_all(const Arguments& a) {}");
}

}  // namespace fuseblock::cuda
