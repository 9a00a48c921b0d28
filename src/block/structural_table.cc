// Structural operations: convolutions, norms, reductions, pools, and what backward blocks need beside them.
// Their types are inferred in typing_*.cc, their adjoints written in adjoint_*.cc; engines implement them by
// OpCode.
#include "block/table.h"

namespace fuseblock {
namespace {

constexpr double kLargestExtent = 2147483647;  // products of two stay far below 2^63

ArgumentSpec integer(std::string name, std::string help, double minimum = 1) {
  ArgumentSpec spec;
  spec.name = std::move(name);
  spec.kind = ArgumentKind::kInteger;
  spec.required = true;
  spec.minimum = minimum;
  spec.maximum = kLargestExtent;
  spec.help = std::move(help);
  return spec;
}

ArgumentSpec integer_or(std::string name, ArgumentValue default_value, std::string help, double minimum = 1) {
  ArgumentSpec spec = integer(std::move(name), std::move(help), minimum);
  spec.required = false;
  spec.default_value = std::move(default_value);
  return spec;
}

// One whole number for all spatial axes or one for each.
ArgumentSpec integers(std::string name, std::string alias, ArgumentValue default_value, std::string help,
                      double minimum, std::vector<std::string> words = {}) {
  ArgumentSpec spec;
  spec.name = std::move(name);
  spec.kind = ArgumentKind::kIntegers;
  spec.default_value = std::move(default_value);
  spec.minimum = minimum;
  spec.maximum = kLargestExtent;
  spec.choices = std::move(words);
  spec.alias = std::move(alias);
  spec.help = std::move(help);
  return spec;
}

ArgumentSpec required(ArgumentSpec spec) {
  spec.required = true;
  spec.default_value = {};
  return spec;
}

ArgumentSpec flag(std::string name, bool default_value, std::string help, std::string alias = {}) {
  ArgumentSpec spec;
  spec.name = std::move(name);
  spec.kind = ArgumentKind::kFlag;
  spec.default_value = default_value;
  spec.alias = std::move(alias);
  spec.help = std::move(help);
  return spec;
}

ArgumentSpec keyword(std::string name, std::string default_value, std::vector<std::string> choices,
                     std::string help, std::string alias = {}) {
  ArgumentSpec spec;
  spec.name = std::move(name);
  spec.kind = ArgumentKind::kKeyword;
  spec.default_value = std::move(default_value);
  spec.choices = std::move(choices);
  spec.alias = std::move(alias);
  spec.help = std::move(help);
  return spec;
}

ArgumentSpec number(std::string name, ArgumentValue default_value, std::string help) {
  ArgumentSpec spec;
  spec.name = std::move(name);
  spec.kind = ArgumentKind::kNumber;
  spec.default_value = std::move(default_value);
  spec.minimum = 0;
  spec.help = std::move(help);
  return spec;
}

ArgumentSpec axes(std::string help, bool is_required) {
  ArgumentSpec spec;
  spec.name = "axes";
  spec.kind = ArgumentKind::kAxes;
  spec.required = is_required;
  spec.default_value = AxisSet{};
  spec.help = std::move(help);
  return spec;
}

OperandSpec value(std::string name, std::string help) {
  return {std::move(name), OperandRole::kValue, {}, std::move(help)};
}

OperandSpec parameter(std::string name, std::vector<std::string> present_if, std::string help) {
  return {std::move(name), OperandRole::kParameter, std::move(present_if), std::move(help)};
}

Operation structural(std::string name, OpCode code, std::string summary, std::string torch,
                     std::vector<OperandSpec> operands, std::vector<ArgumentSpec> arguments) {
  Operation operation;
  operation.name = std::move(name);
  operation.code = code;
  operation.summary = std::move(summary);
  operation.torch = std::move(torch);
  operation.operands = std::move(operands);
  operation.arguments = std::move(arguments);
  return operation;
}

std::string axes_text(int rank) { return rank == 1 ? "one axis" : (rank == 2 ? "two axes" : "three axes"); }

std::vector<ArgumentSpec> conv_arguments(bool transposed) {
  std::vector<ArgumentSpec> arguments = {
      integer("channels", "output channels"),
      required(integers("k", "kernel_size", {}, "extent of the filter", 1)),
      integers("stride", "", std::int64_t{1}, "step between positions", 1),
  };
  arguments[0].alias = "out_channels";
  if (transposed) {
    arguments.push_back(
        integers("pad", "padding", std::int64_t{0}, "positions cut off each side of the output", 0));
    arguments.push_back(
        integers("output_pad", "output_padding", std::int64_t{0}, "positions added behind the output", 0));
  } else {
    arguments.push_back(integers("pad", "padding", std::int64_t{0},
                                 "positions added on each side; `same` keeps the extent, `valid` is 0", 0,
                                 {"same", "valid"}));
    arguments.push_back(keyword("pad_mode", "zeros", {"zeros", "reflect", "replicate", "circular"},
                                "what the added positions hold", "padding_mode"));
  }
  arguments.push_back(integers("dilation", "", std::int64_t{1}, "step between filter taps", 1));
  arguments.push_back(
      integer_or("groups", std::int64_t{1}, "channels are convolved in this many separate groups"));
  arguments.push_back(flag("bias", true, "whether there is a bias"));
  return arguments;
}

// A convolution and its two gradients, which take the same arguments.
void add_convolution(std::vector<Operation>& table, int spatial_rank, bool transposed) {
  const std::string rank = std::to_string(spatial_rank) + "d";
  const std::string name = spatial_rank == 0 ? "linear" : (transposed ? "conv_transpose" : "conv") + rank;
  std::vector<ArgumentSpec> arguments;
  if (spatial_rank == 0) {
    arguments = {integer("channels", "output channels"), flag("bias", true, "whether there is a bias")};
    arguments[0].alias = "out_features";
  } else {
    arguments = conv_arguments(transposed);
  }
  const std::string weight_shape =
      spatial_rank == 0 ? "[channels, c]"
                        : (transposed ? "[c, channels/groups, k...]" : "[channels, c/groups, k...]");
  auto add = [&](Operation operation) {
    operation.spatial_rank = spatial_rank;
    operation.transposed = transposed;
    table.push_back(std::move(operation));
  };
  const std::string what = spatial_rank == 0 ? "A matrix product over the channels of [n,c]."
                           : transposed ? "The transposed convolution over " + axes_text(spatial_rank) + "."
                                        : "The convolution over " + axes_text(spatial_rank) + ".";
  const std::string torch =
      spatial_rank == 0 ? "nn.Linear" : (transposed ? "nn.ConvTranspose" : "nn.Conv") + rank;
  add(structural(name, OpCode::kConvolution, what, torch,
                 {value("x", "the input"), parameter("weight", {}, weight_shape),
                  parameter("bias", {"bias"}, "[channels]")},
                 arguments));
  Operation grad_input = structural(
      name + "_grad_input", OpCode::kConvolutionGradInput, "The gradient of " + name + " by its input.", "",
      {value("d_y", "the gradient of the output"), value("weight", weight_shape),
       value("like", "the input; only its type counts")},
      arguments);
  grad_input.adjoint = true;
  add(std::move(grad_input));
  Operation grad_weight = structural(name + "_grad_weight", OpCode::kConvolutionGradWeight,
                                     "The gradient of " + name + " by its weight.", "",
                                     {value("d_y", "the gradient of the output"), value("x", "the input"),
                                      value("like", "the weight; only its type counts")},
                                     arguments);
  grad_weight.adjoint = true;
  add(std::move(grad_weight));
}

Operation reduction(std::string name, OpCode code, std::string summary, std::string torch) {
  return structural(std::move(name), code, std::move(summary), std::move(torch), {value("x", "the value")},
                    {axes("the axes to reduce; none named means all", false),
                     flag("keepdim", false, "keep the reduced axes with extent 1")});
}

std::vector<ArgumentSpec> pool_arguments(bool average) {
  std::vector<ArgumentSpec> arguments = {
      required(integers("k", "kernel_size", {}, "extent of the window", 1)),
      integers("stride", "", {}, "step between windows; none: the window's extent", 1),
      integers("pad", "padding", std::int64_t{0}, "positions added on each side, at most half the window", 0),
  };
  if (average) {
    arguments.push_back(flag("ceil_mode", false, "let a last window hang over the end"));
    arguments.push_back(flag("count_include_pad", true, "count padding in the average"));
    arguments.push_back(integer_or("divisor_override", {}, "divide by this instead of the window's size"));
  } else {
    arguments.push_back(integers("dilation", "", std::int64_t{1}, "step inside the window", 1));
    arguments.push_back(flag("ceil_mode", false, "let a last window hang over the end"));
  }
  return arguments;
}

Operation adjoint(Operation operation) {
  operation.adjoint = true;
  return operation;
}

}  // namespace

std::vector<Operation> structural_table() {
  std::vector<Operation> table;
  for (bool transposed : {false, true})
    for (int rank = 1; rank <= 3; ++rank) add_convolution(table, rank, transposed);
  add_convolution(table, 0, false);

  const std::vector<std::string> affine = {"affine"};
  table.push_back(
      structural("group_norm", OpCode::kGroupNorm,
                 "Zero mean and unit variance over each group of channels and all positions.",
                 "nn.GroupNorm(groups, c, eps, affine)",
                 {value("x", "the value"), parameter("weight", affine, "[c], the scale"),
                  parameter("bias", affine, "[c], the shift")},
                 {integer("groups", "groups of channels"), number("eps", 1e-5, "added to the variance"),
                  flag("affine", true, "whether there are weight and bias")}));
  table.push_back(structural("instance_norm", OpCode::kInstanceNorm,
                             "Zero mean and unit variance over the positions of each channel.",
                             "nn.InstanceNorm(c, eps, affine=affine)",
                             {value("x", "the value"), parameter("weight", affine, "[c], the scale"),
                              parameter("bias", affine, "[c], the shift")},
                             {number("eps", 1e-5, "added to the variance"),
                              flag("affine", false, "whether there are weight and bias")}));
  table.push_back(
      structural("layer_norm", OpCode::kLayerNorm, "Zero mean and unit variance over the named axes.",
                 "F.layer_norm over the named axes",
                 {value("x", "the value"), parameter("weight", affine, "the extents of the axes, the scale"),
                  parameter("bias", {"affine", "bias"}, "the extents of the axes, the shift")},
                 {axes("the axes to normalise over", true), number("eps", 1e-5, "added to the variance"),
                  flag("affine", true, "whether there is a weight", "elementwise_affine"),
                  flag("bias", true, "whether there is a bias beside the weight")}));
  table.push_back(structural(
      "rms_norm", OpCode::kRmsNorm, "Unit root mean square over the named axes.",
      "F.rms_norm over the named axes",
      {value("x", "the value"), parameter("weight", affine, "the extents of the axes, the scale")},
      {axes("the axes to normalise over", true),
       number("eps", {},
              "added to the mean square; none: the spacing of x's dtype at 1 (f32's for bf16 and f16)"),
       flag("affine", true, "whether there is a weight", "elementwise_affine")}));
  table.push_back(structural("batch_norm", OpCode::kBatchNorm,
                             "Batch norm in evaluation mode: with running statistics.",
                             "nn.BatchNorm(c, eps, affine=affine).eval()",
                             {value("x", "the value"),
                              {"running_mean", OperandRole::kBuffer, {}, "[c]"},
                              {"running_var", OperandRole::kBuffer, {}, "[c]"},
                              parameter("weight", affine, "[c], the scale"),
                              parameter("bias", affine, "[c], the shift")},
                             {number("eps", 1e-5, "added to the variance"),
                              flag("affine", true, "whether there are weight and bias")}));
  table.push_back(structural(
      "l2_normalize", OpCode::kL2Normalize, "Divided by the Euclidean norm over the named axes, or by eps.",
      "F.normalize(x, dim=axes, eps=eps)", {value("x", "the value")},
      {axes("the axes of the norm", true), number("eps", 1e-12, "the smallest divisor")}));
  table.push_back(structural("softmax", OpCode::kSoftmax, "exp(x) over its sum along the named axes.",
                             "torch.softmax(x, axes)", {value("x", "the value")},
                             {axes("the axes that sum to 1", true)}));

  Operation mean = reduction("mean", OpCode::kMean, "The mean.", "torch.mean(x, axes, keepdim)");
  mean.arguments.push_back(integer_or("groups", std::int64_t{1},
                                      "with c among the axes and keepdim: one mean for each group of "
                                      "channels, standing at every channel of its group"));
  table.push_back(std::move(mean));
  table.push_back(reduction("sum", OpCode::kSum, "The sum.", "torch.sum(x, axes, keepdim)"));
  table.push_back(reduction("max", OpCode::kMax, "The largest value; ties share the gradient.",
                            "torch.amax(x, axes, keepdim)"));
  table.push_back(reduction("min", OpCode::kMin, "The smallest value; ties share the gradient.",
                            "torch.amin(x, axes, keepdim)"));
  table.push_back(reduction("logsumexp", OpCode::kLogSumExp, "log of the sum of exp.",
                            "torch.logsumexp(x, axes, keepdim)"));

  table.push_back(structural("max_pool", OpCode::kMaxPool, "The largest value of each window.", "F.max_pool",
                             {value("x", "the value")}, pool_arguments(false)));
  table.push_back(structural("avg_pool", OpCode::kAvgPool, "The mean of each window.", "F.avg_pool",
                             {value("x", "the value")}, pool_arguments(true)));
  table.push_back(
      structural("cast", OpCode::kCast, "The same values declared as another dtype.", "x.to(dtype)",
                 {value("x", "the value")},
                 {required(keyword("dtype", "f32", {"f64", "f32", "bf16", "f16"}, "the dtype"))}));

  table.push_back(adjoint(structural("zeros", OpCode::kZeros, "Zeros of the type of a value.",
                                     "torch.zeros_like(x)", {value("like", "only its type counts")}, {})));
  table.push_back(adjoint(
      structural("expand", OpCode::kExpand,
                 "Repeats a value along the axes where another is longer: the adjoint of sum.",
                 "x.expand_as(like)", {value("x", "the value"), value("like", "only its type counts")},
                 {flag("share", false, "divide by the number of copies: the adjoint of mean")})));
  table.push_back(adjoint(structural(
      "rstd", OpCode::kRstd, "1 / sqrt(variance + eps) over the named axes, which stay with extent 1.",
      "torch.rsqrt(torch.var(x, axes, correction=0, keepdim=True) + eps)", {value("x", "the value")},
      {axes("the axes of the variance", true), number("eps", 1e-5, "added to the variance"),
       integer_or("groups", std::int64_t{1},
                  "with c among the axes: one value for each group of channels, standing at every channel of "
                  "its group")})));
  table.push_back(
      adjoint(structural("max_pool_take", OpCode::kMaxPoolTake,
                         "Takes, for each window, the element of v where x has its largest value.", "",
                         {value("v", "what is taken"), value("x", "what decides")}, pool_arguments(false))));
  table.push_back(adjoint(structural(
      "max_pool_put", OpCode::kMaxPoolPut,
      "Adds d_y of each window where x has its largest value: the adjoint of max_pool.", "",
      {value("d_y", "the gradient of the output"), value("x", "the input")}, pool_arguments(false))));
  table.push_back(adjoint(structural(
      "avg_pool_grad", OpCode::kAvgPoolGrad, "The adjoint of avg_pool.", "",
      {value("d_y", "the gradient of the output"), value("like", "the input; only its type counts")},
      pool_arguments(true))));
  return table;
}

}  // namespace fuseblock
