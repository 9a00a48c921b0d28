/* The C API from C99: a plan from notation to results, gradients, every kind of refusal. The status is 0 if all holds. */
#include "fuseblock/c_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define FUSEBLOCK_EXPECT(condition)                                   \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      fprintf(stderr, "  last error: %s\n", fuseblock_last_error());  \
      ++failures;                                                     \
    }                                                                 \
  } while (0)

static int says(const char* part) { return strstr(fuseblock_last_error(), part) != NULL; }

static FuseblockTensor tensor(void* data, const FuseblockTensorInfo* info) {
  FuseblockTensor result;
  result.data = data;
  result.dtype = info->dtype;
  result.rank = info->rank;
  result.extents = info->extents;
  result.strides = info->strides;
  return result;
}

static FuseblockTensorInfo input_info(const FuseblockPlan* plan, size_t index) {
  FuseblockTensorInfo info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  FUSEBLOCK_EXPECT(fuseblock_plan_input(plan, index, &info) == kFuseblockOk);
  return info;
}

static FuseblockTensorInfo output_info(const FuseblockPlan* plan, size_t index) {
  FuseblockTensorInfo info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  FUSEBLOCK_EXPECT(fuseblock_plan_output(plan, index, &info) == kFuseblockOk);
  return info;
}

static FuseblockPlan* made(const char* notation, const char* type) {
  FuseblockPlan* plan = NULL;
  FUSEBLOCK_EXPECT(fuseblock_plan_make(notation, type, NULL, 0, NULL, NULL, &plan) == kFuseblockOk);
  return plan;
}

/* Memory at a multiple of 64, inside `raw`, which the caller frees. */
static void* workspace_of(const FuseblockPlan* plan, void** raw) {
  *raw = malloc(fuseblock_plan_workspace_bytes(plan) + 64);
  return (char*)*raw + (64 - (uintptr_t)*raw % 64);
}

/* y = relu(x) * scale, and its gradient by x. */
static void runs_forward_and_backward(void) {
  const FuseblockNamedType others[] = {{"scale", "f32[1,2]"}};
  const char* const wanted[] = {"x"};
  float x[6] = {1, -2, 3, -4, 5, 6};
  float scale[2] = {10, 100};
  float y[6] = {0};
  float d_y[6] = {1, 1, 1, 1, 1, 2};
  float d_x[6] = {0};
  const float expected_y[6] = {10, 0, 30, 0, 50, 600};
  const float expected_d_x[6] = {10, 0, 10, 0, 10, 200};
  FuseblockPlanOptions options;
  FuseblockPlan* plan = NULL;
  FuseblockPlan* forward = NULL;
  FuseblockPlan* backward = NULL;
  FuseblockTensorInfo info;
  FuseblockTensor inputs[3];
  FuseblockTensor outputs[1];
  void* raw = NULL;
  void* workspace = NULL;
  size_t i = 0;

  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.threads = 1;
  FUSEBLOCK_EXPECT(fuseblock_plan_make("relu | mul(scale)", "f32[3,2]", others, 1, "cpu", &options, &plan) ==
                   kFuseblockOk);
  FUSEBLOCK_EXPECT(fuseblock_plan_for_training(plan, wanted, 1, &forward, &backward) == kFuseblockOk);
  fuseblock_plan_free(plan); /* the others do not need it */

  FUSEBLOCK_EXPECT(fuseblock_plan_input_count(forward) == 2);
  FUSEBLOCK_EXPECT(fuseblock_plan_output_count(forward) == 1);
  info = input_info(forward, 1);
  FUSEBLOCK_EXPECT(strcmp(info.name, "scale") == 0 && strcmp(info.type, "f32[1,2]") == 0);
  FUSEBLOCK_EXPECT(info.dtype == kFuseblockF32 && info.rank == 2 && info.extents[1] == 2 &&
                   info.strides[0] == 2);

  info = input_info(forward, 0);
  inputs[0] = tensor(x, &info);
  info = input_info(forward, 1);
  inputs[1] = tensor(scale, &info);
  info = output_info(forward, 0);
  outputs[0] = tensor(y, &info);
  workspace = workspace_of(forward, &raw);
  FUSEBLOCK_EXPECT(fuseblock_plan_run(forward, inputs, 2, outputs, 1, workspace,
                                      fuseblock_plan_workspace_bytes(forward)) == kFuseblockOk);
  free(raw);
  for (i = 0; i < 6; ++i) FUSEBLOCK_EXPECT(y[i] == expected_y[i]);

  FUSEBLOCK_EXPECT(fuseblock_plan_input_count(backward) == 3);
  for (i = 0; i < fuseblock_plan_input_count(backward); ++i) {
    info = input_info(backward, i);
    if (strcmp(info.name, "x") == 0)
      inputs[i] = tensor(x, &info);
    else if (strcmp(info.name, "scale") == 0)
      inputs[i] = tensor(scale, &info);
    else
      inputs[i] = tensor(d_y, &info);
  }
  info = output_info(backward, 0);
  FUSEBLOCK_EXPECT(strcmp(info.name, "d_x") == 0);
  outputs[0] = tensor(d_x, &info);
  workspace = workspace_of(backward, &raw);
  FUSEBLOCK_EXPECT(fuseblock_plan_run(backward, inputs, 3, outputs, 1, workspace,
                                      fuseblock_plan_workspace_bytes(backward)) == kFuseblockOk);
  free(raw);
  for (i = 0; i < 6; ++i) FUSEBLOCK_EXPECT(d_x[i] == expected_d_x[i]);
  fuseblock_plan_free(forward);
  fuseblock_plan_free(backward);
}

static void refuses_what_cannot_be_planned(void) {
  const FuseblockNamedType unknown[] = {{"nothing", "f32[2]"}};
  const char* const wanted[] = {"nothing"};
  FuseblockPlan* untouched = made("relu", "f32[2,3]");
  FuseblockPlan* plan = untouched;
  FuseblockPlan* other = untouched;
  FuseblockPlanOptions options;
  memset(&options, 0, sizeof(options));
  FUSEBLOCK_EXPECT(fuseblock_plan_make("group_norm(7)", "f32[2,24]", NULL, 0, NULL, NULL, &plan) ==
                   kFuseblockUserError);
  FUSEBLOCK_EXPECT(says("24 channels do not divide into 7 groups"));
  FUSEBLOCK_EXPECT(says("line 1, column 1"));
  FUSEBLOCK_EXPECT(fuseblock_plan_make("relu", "f33[2,3]", NULL, 0, NULL, NULL, &plan) ==
                   kFuseblockUserError);
  FUSEBLOCK_EXPECT(fuseblock_plan_make("relu", "f32[2,3]", unknown, 1, NULL, NULL, &plan) ==
                   kFuseblockUserError);
  FUSEBLOCK_EXPECT(says("nothing"));
  FUSEBLOCK_EXPECT(fuseblock_plan_make("relu", "f32[2,3]", NULL, 0, "abacus", NULL, &plan) ==
                   kFuseblockUserError);
  FUSEBLOCK_EXPECT(says("abacus"));
  FUSEBLOCK_EXPECT(fuseblock_plan_make(NULL, "f32[2,3]", NULL, 0, NULL, NULL, &plan) == kFuseblockUserError);
  FUSEBLOCK_EXPECT(says("notation"));
  FUSEBLOCK_EXPECT(fuseblock_plan_make("relu", "f32[2,3]", NULL, 0, NULL, NULL, NULL) == kFuseblockUserError);
  FUSEBLOCK_EXPECT(fuseblock_plan_make("relu", "f32[2,3]", NULL, 0, NULL, &options, &plan) ==
                   kFuseblockUserError);
  FUSEBLOCK_EXPECT(says("struct_size"));
  options.struct_size = sizeof(options);
  options.reuse = 7;
  FUSEBLOCK_EXPECT(fuseblock_plan_make("relu", "f32[2,3]", NULL, 0, NULL, &options, &plan) ==
                   kFuseblockUserError);
  FUSEBLOCK_EXPECT(says("reuse"));
  options.reuse = kFuseblockReuseByCost;
  options.precision = 7;
  FUSEBLOCK_EXPECT(fuseblock_plan_make("relu", "f32[2,3]", NULL, 0, NULL, &options, &plan) ==
                   kFuseblockUserError);
  FUSEBLOCK_EXPECT(says("precision"));
  FUSEBLOCK_EXPECT(fuseblock_plan_backward(untouched, wanted, 1, &plan) == kFuseblockUserError);
  FUSEBLOCK_EXPECT(fuseblock_plan_for_training(untouched, wanted, 1, &plan, &other) == kFuseblockUserError);
  FUSEBLOCK_EXPECT(plan == untouched && other == untouched);
  fuseblock_plan_free(untouched);
}

static void refuses_tensors_that_do_not_fit(void) {
  FuseblockPlan* plan = made("relu", "f32[2,3]");
  FuseblockTensorInfo info = input_info(plan, 0);
  float data[6] = {0};
  void* raw = NULL;
  void* workspace = workspace_of(plan, &raw);
  const size_t bytes = fuseblock_plan_workspace_bytes(plan);
  FuseblockTensor good = tensor(data, &info);
  FuseblockTensor bad = good;
  FUSEBLOCK_EXPECT(fuseblock_plan_run(plan, &good, 1, &good, 0, workspace, bytes) == kFuseblockUserError);
  FUSEBLOCK_EXPECT(says("expected 1 outputs, got 0"));
  bad.dtype = kFuseblockF64;
  FUSEBLOCK_EXPECT(fuseblock_plan_run(plan, &bad, 1, &good, 1, workspace, bytes) == kFuseblockUserError);
  FUSEBLOCK_EXPECT(says("expected f32[2,3], got f64[2,3]"));
  bad.dtype = 17;
  FUSEBLOCK_EXPECT(fuseblock_plan_run(plan, &bad, 1, &good, 1, workspace, bytes) == kFuseblockUserError);
  bad = good;
  bad.rank = 3;
  FUSEBLOCK_EXPECT(fuseblock_plan_run(plan, &bad, 1, &good, 1, workspace, bytes) == kFuseblockUserError);
  FUSEBLOCK_EXPECT(says("rank"));
  bad = good;
  bad.strides = NULL;
  FUSEBLOCK_EXPECT(fuseblock_plan_run(plan, &bad, 1, &good, 1, workspace, bytes) == kFuseblockUserError);
  bad = good;
  bad.data = NULL;
  FUSEBLOCK_EXPECT(fuseblock_plan_run(plan, &bad, 1, &good, 1, workspace, bytes) == kFuseblockUserError);
  FUSEBLOCK_EXPECT(fuseblock_plan_run(plan, NULL, 1, &good, 1, workspace, bytes) == kFuseblockUserError);
  FUSEBLOCK_EXPECT(fuseblock_plan_run(NULL, &good, 1, &good, 1, workspace, bytes) == kFuseblockUserError);
  FUSEBLOCK_EXPECT(fuseblock_plan_input(plan, 1, &info) == kFuseblockUserError);
  FUSEBLOCK_EXPECT(says("less than 1, got 1"));
  free(raw);
  fuseblock_plan_free(plan);
}

/* A caller compiled against a longer FuseblockPlanOptions may set nothing that the library does not know. */
static void refuses_options_it_does_not_know(void) {
  struct Longer {
    FuseblockPlanOptions options;
    int64_t added;
  } longer;
  FuseblockPlan* plan = NULL;
  memset(&longer, 0, sizeof(longer));
  longer.options.struct_size = sizeof(longer);
  longer.added = 1;
  FUSEBLOCK_EXPECT(fuseblock_plan_make("relu", "f32[2,3]", NULL, 0, NULL, &longer.options, &plan) ==
                   kFuseblockNotSupported);
  FUSEBLOCK_EXPECT(says("options"));
  longer.added = 0;
  FUSEBLOCK_EXPECT(fuseblock_plan_make("relu", "f32[2,3]", NULL, 0, NULL, &longer.options, &plan) ==
                   kFuseblockOk);
  fuseblock_plan_free(plan);
}

/* A caller compiled against a shorter FuseblockTensorInfo gets what it has room for. */
static void fills_what_the_caller_knows(void) {
  FuseblockPlan* plan = made("relu", "f32[2,3]");
  FuseblockTensorInfo info;
  memset(&info, 0, sizeof(info));
  info.struct_size = offsetof(FuseblockTensorInfo, dtype);
  info.rank = -1;
  FUSEBLOCK_EXPECT(fuseblock_plan_input(plan, 0, &info) == kFuseblockOk);
  FUSEBLOCK_EXPECT(strcmp(info.name, "x") == 0 && strcmp(info.type, "f32[2,3]") == 0);
  FUSEBLOCK_EXPECT(info.rank == -1 && info.extents == NULL);
  fuseblock_plan_free(plan);
}

static void explains(void) {
  FuseblockPlan* plan = made(
      "{\"statements\": [{\"name\": \"y\", \"op\": \"relu\", \"operands\": [\"x\"]}], "
      "\"outputs\": [\"y\"]}",
      "f32[2,3]");
  const char* text = NULL;
  const char* again = NULL;
  FUSEBLOCK_EXPECT(fuseblock_plan_explain(plan, &text) == kFuseblockOk);
  FUSEBLOCK_EXPECT(text != NULL && strstr(text, "relu") != NULL);
  FUSEBLOCK_EXPECT(fuseblock_plan_explain(plan, &again) == kFuseblockOk && again == text);
  FUSEBLOCK_EXPECT(fuseblock_plan_explain_json(plan, &text) == kFuseblockOk && text[0] == '{');
  FUSEBLOCK_EXPECT(fuseblock_plan_launches_json(plan, NULL, &text) == kFuseblockNotSupported);
  FUSEBLOCK_EXPECT(fuseblock_plan_explain(NULL, &text) == kFuseblockUserError);
  fuseblock_plan_free(plan);
}

int main(void) {
  FUSEBLOCK_EXPECT(fuseblock_c_api_version() == FUSEBLOCK_C_API_VERSION);
  FUSEBLOCK_EXPECT(strlen(fuseblock_version()) >= 5);
  FUSEBLOCK_EXPECT(strlen(fuseblock_last_error()) == 0);
  FUSEBLOCK_EXPECT(fuseblock_set_compiler_folder(NULL) == kFuseblockUserError);
  FUSEBLOCK_EXPECT(fuseblock_set_compiler_folder("nowhere") == kFuseblockOk);
  fuseblock_plan_free(NULL);
  fuseblock_advise_fresh_memory(NULL, (size_t)1 << 30);
  FUSEBLOCK_EXPECT(fuseblock_plan_input_count(NULL) == 0 && fuseblock_plan_workspace_bytes(NULL) == 0);
  runs_forward_and_backward();
  refuses_what_cannot_be_planned();
  refuses_tensors_that_do_not_fit();
  refuses_options_it_does_not_know();
  fills_what_the_caller_knows();
  explains();
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
