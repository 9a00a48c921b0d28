// What the texts of kernels over a convolution have in common: the sweep's program and sinks on a lane's
// sums.
#pragma once

#include "cuda/conv_sum.h"
#include "cuda/emit/conv_text.h"
#include "cuda/emit/position_steps.h"
#include "cuda/emit/tangent_form.h"
#include "cuda/emit/unit_text.h"

namespace fuseblock::cuda {

class ConvSweepWriter : public UnitWriter {
 public:
  ConvSweepWriter(const Schedule& schedule, const KernelCut& cut);

 protected:
  // Whether statistics of each channel are taken.
  bool totals() const { return !taken_.empty() && !over_channels_; }
  // Which functions the program takes, the constant k16Bit: 0 within a few ulp of f32, 1 where all that is made
  // of an element is rounded to 16 bits, 2 for sums of tf32 products, 3 where all is rounded to bf16.
  std::string functions_text(ConvMode mode) const;

  // What sinks take of an element, what does not vary over positions, statistics with and without their
  // count.
  void write_structs(Text& text);
  // Members of UnitValues. Returns their bytes, or a few more.
  int write_values(Text& text) const;
  // input_data and input_offset: the tensor that is convolved.
  void write_input(Text& text);
  // weight_at.
  void write_weight(Text& text);
  // The struct Sweep0: the program, stores, and what follows reductions over channels.
  void write_sweep(Text& text);
  // The sweep, its finalise steps and those of the last block; whether there are any of these.
  bool write_programs(Text& text);
  // Calls of the finalise steps, for `unit`.
  void write_finalise_calls(Text& text) const;
  // finish_sample, of a kernel whose tiles follow each other through all samples, and the scalars by which its
  // weights come and the statistics of its blocks are joined.
  void write_finish_sample(Text& text);
  // The types that such a kernel takes, before the other device files. `far`: offsets need 64 bits.
  std::string types_text(bool far) const;
  // run_item, of a kernel whose stages are `stages`, and the scalars it joins a sample's items by.
  void write_run_item(Text& text, const std::string& stages);

  ConvSum conv_;
  int input_;  // slot
  PositionSteps split_;
  std::vector<const Sink*> taken_;
  bool over_channels_ = false;
  bool moves_ = false;          // the sweep has a function that moves places to another channel
  bool apart_ = false;          // what statistics take of an element is a step of its own
  bool late_bias_ = false;      // sums of products begin at 0
  bool tangents_ = false;       // exponents may be taken in the form of tangent_form.h
  bool starts_ = false;         // products bring along what sums begin at
  bool moves_sums_ = false;     // sums of a channel are moved where moments of the convolution are taken
  std::string crew_ = "Block";  // who works the statistics of a sample out (device/crew.cuh)
  int numbers_ = 0;             // that the statistics of one channel are
  int kept_numbers_ = 0;        // without their count

 private:
  void write_kept(Text& text) const;
  bool sums_exponentials() const;
  std::optional<TangentForm> tangents() const;
  void write_tangents(Text& text) const;
  void write_exponentials(Text& text) const;
  // Whether all that is taken are moments of the convolution itself, whose means take the bias later.
  bool bias_later() const;
  // Whether all that is taken are moments of the convolution itself.
  bool takes_convolution() const;
  // Tensors that the sweep reads and writes at each position, and an element of one at channel `c`.
  std::vector<int> placed_slots() const;
  void write_places(Text& text);
  std::string placed(int slot);
  void write_program(Text& text);
  void write_store(Text& text);
  void write_end(Text& text);
  void write_ask_for_channels(Text& text);
};

}  // namespace fuseblock::cuda
